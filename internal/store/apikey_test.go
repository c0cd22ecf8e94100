// Tests of API keys.

package store_test

import (
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestKeys(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	secret, id, err := b.CreateKey(ctx, "shop", []string{store.ScopeNotify, store.ScopeActUser})
	b.must(err)
	if !strings.HasPrefix(secret, "tdk_") || len(secret) != len("tdk_")+43 {
		t.Errorf("a secret of %d characters", len(secret))
	}
	key, err := b.FindKey(ctx, secret)
	b.must(err)
	if key.ID != id || key.Name != "shop" || len(key.Scopes) != 2 || key.Scopes[1] != "act:user" || key.RevokedAt != nil {
		t.Errorf("FindKey = %+v", key)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.api_key k WHERE k::text LIKE '%' || $1 || '%'`, secret[4:]); n != 0 {
		t.Error("the secret is stored")
	}
	for _, wrong := range []string{"", "tdk_", secret + "x", secret[:len(secret)-1], strings.ToUpper(secret)} {
		_, err := b.FindKey(ctx, wrong)
		b.want(tidings.Unauthenticated, err)
	}
	other, _, err := b.CreateKey(ctx, "shop", []string{store.ScopeReview})
	b.must(err)

	b.must(b.RevokeKey(ctx, id))
	revoked, err := b.ListKeys(ctx)
	b.must(err)
	b.must(b.RevokeKey(ctx, id))
	again, err := b.ListKeys(ctx)
	b.must(err)
	if len(again) != 2 || again[0].ID != id || !again[0].RevokedAt.Equal(*revoked[0].RevokedAt) || again[1].RevokedAt != nil {
		t.Errorf("ListKeys = %+v", again)
	}
	_, err = b.FindKey(ctx, secret)
	b.want(tidings.Unauthenticated, err)
	_, err = b.FindKey(ctx, other)
	b.must(err)
	b.want(tidings.NotFound, b.RevokeKey(ctx, tidings.UUID{1}))
}

func TestKeyRefusesBadInput(t *testing.T) {
	b := newBench(t)
	for name, scopes := range map[string][]string{"": {"notify"}, "none": nil, "unknown": {"root"}, strings.Repeat("n", 129): {"notify"}} {
		_, _, err := b.CreateKey(t.Context(), name, scopes)
		b.want(tidings.InvalidArgument, err)
	}
}
