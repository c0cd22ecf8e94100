package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// securityScheme is the name under which OpenAPI knows API keys. An operation lists the scopes of which one suffices.
const securityScheme = "key"

// KeyCacheTime is how long a key that was found is believed without asking again: a revocation reaches a process within it.
const KeyCacheTime = 5 * time.Second

// keyCacheSize bounds the cache; when it is full it starts anew.
const keyCacheSize = 4096

// Keys authenticates API keys.
type Keys struct {
	store *store.Store

	mu    sync.Mutex
	found map[[sha256.Size]byte]foundKey
}

type foundKey struct {
	key   store.Key
	until time.Time
}

// NewKeys makes an empty cache over the stored keys.
func NewKeys(s *store.Store) *Keys {
	return &Keys{store: s, found: map[[sha256.Size]byte]foundKey{}}
}

// Authorize finds the key that the request carries and tells whether it has one of the scopes. The error has the code
// UNAUTHENTICATED or FORBIDDEN, or UNAVAILABLE when the keys cannot be read.
func (k *Keys) Authorize(r *http.Request, scopes ...string) (store.Key, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return store.Key{}, tidings.Errorf(tidings.Unauthenticated, "the request has no header Authorization: Bearer with an API key")
	}
	key, err := k.find(r.Context(), strings.TrimSpace(secret))
	if err != nil {
		return store.Key{}, err
	}
	if !slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(key.Scopes, s) }) {
		return store.Key{}, tidings.Errorf(tidings.Forbidden, "this call needs a key with the scope %s", strings.Join(scopes, " or "))
	}
	return key, nil
}

func (k *Keys) find(ctx context.Context, secret string) (store.Key, error) {
	hash := sha256.Sum256([]byte(secret))
	now := time.Now()
	k.mu.Lock()
	known, ok := k.found[hash]
	k.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.key, nil
	}
	key, err := k.store.FindKey(ctx, secret)
	if err != nil {
		return store.Key{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.found) >= keyCacheSize {
		clear(k.found)
	}
	k.found[hash] = foundKey{key, now.Add(KeyCacheTime)}
	return key, nil
}

type byKey struct{}

// OperatorHeader names the person on whose behalf a server's key acts. It is believed: whoever has the key can do as much.
const OperatorHeader = "Tidings-Operator"

// by is who acts, as journals and pauses record it: the key's name, and the person that the header names.
func by(ctx context.Context) string {
	who, _ := ctx.Value(byKey{}).(string)
	return who
}

// authenticate admits a request to an operation by the scopes that the operation lists; one that lists none is open.
func (a *API) authenticate(ctx huma.Context, next func(huma.Context)) {
	var scopes []string
	for _, requirement := range ctx.Operation().Security {
		scopes = append(scopes, requirement[securityScheme]...)
	}
	if len(scopes) == 0 {
		next(ctx)
		return
	}
	r, w := humago.Unwrap(ctx)
	key, err := a.keys.Authorize(r, scopes...)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	who := key.Name
	if operator := r.Header.Get(OperatorHeader); operator != "" {
		if err := tidings.CheckID("the header "+OperatorHeader, operator); err != nil {
			a.refuse(w, r, err)
			return
		}
		if who += ":" + operator; len(who) > tidings.MaxID {
			a.refuse(w, r, tidings.Errorf(tidings.InvalidArgument, "the header %s and the key's name are longer than %d bytes together", OperatorHeader, tidings.MaxID))
			return
		}
	}
	next(huma.WithValue(ctx, byKey{}, who))
}
