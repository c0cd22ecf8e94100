// Tests of the command token.

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/token"
)

// tokenCommand runs a command of tokenCmd.
func tokenCommand(t testing.TB, args ...string) (string, error) {
	t.Helper()
	var c tokenCmd
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return "", usage(err)
	}
	var out bytes.Buffer
	err = parsed.Run(&env{ctx: t.Context(), stdout: &out, stderr: &out})
	return out.String(), err
}

func TestTokens(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	url := pgtest.NewURL(t)
	verifier, err := token.New(token.Config{HS256Secret: []byte(secret), Audience: "tidings", Leeway: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	issue := func(args ...string) token.Claims {
		t.Helper()
		out, err := tokenCommand(t, append([]string{"issue", "u-ana"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(out, "{") {
			out = decode[map[string]any](t, out)["token"].(string)
		}
		c, err := verifier.Verify(t.Context(), strings.TrimSpace(out))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}

	var wrong usageError
	if _, err := tokenCommand(t, "issue", "u-ana"); !errors.As(err, &wrong) {
		t.Errorf("without a secret: %v", err)
	}
	t.Setenv("TIDINGS_TOKEN_HS256_SECRET", secret)
	for _, args := range [][]string{{"u ana"}, {"u-ana", "--device", "a/b"}, {"u-ana", "--for", "0s"}, {"u-ana", "--token-hs256-secret", "hush-hush"}, {"u-ana", "--token-audience", ""}} {
		out, err := tokenCommand(t, append([]string{"issue"}, args...)...)
		if !errors.As(err, &wrong) || strings.Contains(err.Error()+out, "hush") {
			t.Errorf("%v: %s, %v", args, out, err)
		}
	}
	c := issue("--device", "d-1", "--for", "2h", "--json")
	if c.User != "u-ana" || c.Device != "d-1" || c.Expires.Sub(c.Issued) != 2*time.Hour {
		t.Errorf("issued %+v", c)
	}
	before := issue()

	if out, err := tokenCommand(t, "revoke", "u-ana", "--database-url", url); err != nil || out != "revoked\n" {
		t.Fatalf("revoke: %s, %v", out, err)
	}
	s, err := server.OpenStore(url, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Pool().Close()
	floor, err := s.TokenFloor(t.Context(), "u-ana")
	if err != nil || !before.Revoked(floor) || issue().Revoked(floor) {
		t.Errorf("the floor is %v, %v; a token from before is of %v", floor, err, before.Issued)
	}
	if _, err := tokenCommand(t, "revoke", "u ana", "--database-url", url); err == nil {
		t.Error("a user that is no id is revoked")
	}
}
