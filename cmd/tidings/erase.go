// The command erase.

package main

import (
	"fmt"

	"github.com/tidings-project/tidings"
)

type eraseCmd struct {
	User eraseUserCmd `cmd:"" help:"Recall all messages of a user, delete where they are reached, empty their notifications. There is no way back."`
}

type eraseUserCmd struct {
	database
	asJSON
	User string `arg:"" help:"The user."`
	By   string `required:"" placeholder:"OPERATOR" help:"Who orders it; an id. It stands in the recalls."`
}

// Run erases without asking. Interrupted it is run again.
func (c *eraseUserCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	did, err := s.EraseUser(e.ctx, c.User, c.By)
	if tidings.ErrorCode(err) == tidings.InvalidArgument {
		return usage(err)
	}
	if err != nil {
		return fmt.Errorf("%w (run it again: what was erased stays so)", err)
	}
	err = c.print(e, did, func() {
		if !did.Known {
			fmt.Fprintf(e.stdout, "no such user is known here: %s. Nothing was there to be erased; the journal has the erasure.\n", did.User)
			return
		}
		fmt.Fprintf(e.stdout, "erased what %s has written and set up to %s:\n", did.User, when(did.CutoffAt))
		fmt.Fprintf(e.stdout, "  %s recalled in %s\n", count(did.Messages, "message"), count(did.Conversations, "conversation"))
		fmt.Fprintf(e.stdout, "  %s deleted\n", count(did.Preferences, "preference"))
		fmt.Fprintf(e.stdout, "  %s emptied and cancelled, with the address of %s\n", count(did.Notifications, "notification"), count(did.Tasks, "task"))
		fmt.Fprintln(e.stdout, "Not reached: copies on devices until they sync, backups and WAL made before.")
		fmt.Fprintln(e.stdout, "The user is still a member and can write again: revoke tokens, remove memberships.")
	})
	if err == nil && !did.Known {
		return errNo
	}
	return err
}
