// Tests of how tokens are renewed.

package client_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/internal/token"
)

// TestATokenIsRefreshedBeforeItEnds stays connected through the ends of several tokens.
func TestATokenIsRefreshedBeforeItEnds(t *testing.T) {
	h := newHouse(t)
	h.create("c-g", "u-ana")
	var issued atomic.Int64
	const life = 3 * time.Second
	began := time.Now()
	_, all := h.client("u-ana", "d-a", func(c *client.Config) {
		c.Token = func(context.Context) (client.Token, error) {
			issued.Add(1)
			now := time.Now()
			text, err := token.IssueHS256(secret, "tidings", token.Claims{User: "u-ana", Issued: now, Expires: now.Add(life)})
			return client.Token{Text: text, Expires: now.Add(life)}, err
		}
	})
	eventually(t, "three tokens are used", func() bool { return issued.Load() >= 3 && time.Since(began) > life+time.Second })
	if slices.ContainsFunc(all.updates(), func(u client.Update) bool {
		c, ok := u.(client.Connection)
		return ok && c.State != client.Online
	}) {
		t.Fatalf("the connection was lost: %+v", all.updates())
	}
}
