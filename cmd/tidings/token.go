// The command token: sign and revoke users' tokens.

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidings-project/tidings/internal/token"
)

type tokenCmd struct {
	Issue  tokenIssueCmd  `cmd:"" help:"Sign a user's token with the HS256 secret and show it."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke every token that was issued to a user until now; HTTP requests are refused within 5 s, open connections are closed within 10 s."`
}

type tokenIssueCmd struct {
	asJSON
	User     string        `arg:"" help:"Whose token it is."`
	Device   string        `placeholder:"DEVICE" help:"The only device that may use it. Default: any."`
	For      time.Duration `default:"1h" help:"How long it is good."`
	Secret   string        `name:"token-hs256-secret" env:"TIDINGS_TOKEN_HS256_SECRET" required:"" placeholder:"SECRET" help:"The server's secret. Prefer the environment: other users of the machine can read a command line."`
	Audience string        `name:"token-audience" env:"TIDINGS_TOKEN_AUDIENCE" default:"tidings" help:"The server's audience."`
}

func (c *tokenIssueCmd) Run(e *env) error {
	if c.For <= 0 {
		return usage(errors.New("--for must be above 0"))
	}
	now := time.Now()
	claims := token.Claims{User: c.User, Device: c.Device, Issued: now, Expires: now.Add(c.For)}
	text, err := token.IssueHS256([]byte(c.Secret), c.Audience, claims)
	if err != nil {
		return usage(err)
	}
	out := map[string]any{"token": text, "user": c.User, "expires_at": claims.Expires.UTC().Format(time.RFC3339)}
	if c.Device != "" {
		out["device"] = c.Device
	}
	return c.print(e, out, func() {
		fmt.Fprintln(e.stdout, text)
	})
}

type tokenRevokeCmd struct {
	database
	User string `arg:"" help:"Whose tokens."`
}

func (c *tokenRevokeCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	if err := s.RevokeTokens(e.ctx, c.User, time.Time{}); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, "revoked")
	return nil
}
