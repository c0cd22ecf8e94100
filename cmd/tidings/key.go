// The command key: API keys.

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make a key and show it, this once."`
	List   keyListCmd   `cmd:"" help:"List the keys; the keys themselves are not stored."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key; processes believe it for at most 5 s more."`
}

type keyCreateCmd struct {
	database
	asJSON
	Name   string   `arg:"" help:"Whose key it is; stands in the journal."`
	Scopes []string `required:"" help:"What it may do: ${scopes}, or all."`
}

func (c *keyCreateCmd) Run(e *env) error {
	if len(c.Scopes) == 1 && c.Scopes[0] == "all" {
		c.Scopes = store.Scopes
	}
	for _, scope := range c.Scopes {
		if !slices.Contains(store.Scopes, scope) {
			return usage(fmt.Errorf("there is no scope %q; there are %s, or all alone", scope, strings.Join(store.Scopes, ", ")))
		}
	}
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	secret, id, err := s.CreateKey(e.ctx, c.Name, c.Scopes)
	if tidings.ErrorCode(err) == tidings.InvalidArgument {
		return usage(err)
	}
	if err != nil {
		return err
	}
	return c.print(e, map[string]any{"id": id, "name": c.Name, "scopes": c.Scopes, "key": secret}, func() {
		fmt.Fprintln(e.stdout, secret)
	})
}

type keyListCmd struct {
	database
	asJSON
}

func (c *keyListCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	keys, err := s.ListKeys(e.ctx)
	if err != nil {
		return err
	}
	return c.print(e, keys, func() {
		table(e.stdout, func(row func(...any)) {
			row("ID", "NAME", "SCOPES", "CREATED", "REVOKED")
			for _, k := range keys {
				revoked := ""
				if k.RevokedAt != nil {
					revoked = k.RevokedAt.Format(time.RFC3339)
				}
				row(k.ID, k.Name, strings.Join(k.Scopes, ","), k.CreatedAt.Format(time.RFC3339), revoked)
			}
		})
	})
}

type keyRevokeCmd struct {
	database
	ID string `arg:"" help:"The key's id."`
}

func (c *keyRevokeCmd) Run(e *env) error {
	id, err := tidings.ParseUUID(c.ID)
	if err != nil {
		return usage(err)
	}
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	if err := s.RevokeKey(e.ctx, id); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, "revoked")
	return nil
}
