// Who asks: API keys, users' tokens, scopes.

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
	"github.com/tidings-project/tidings/internal/token"
)

// securityScheme is the name under which OpenAPI knows API keys. An operation lists the scopes of which one suffices.
const securityScheme = "key"

// KeyCacheTime is how long a key, or that a user's tokens are not revoked, is believed without asking again: a revocation reaches a
// process within it.
const KeyCacheTime = 5 * time.Second

// keyCacheSize bounds each cache; when one is full it starts anew.
const keyCacheSize = 4096

// Keys authenticates API keys and users' tokens.
type Keys struct {
	// Tokens verifies users' tokens; nil: none is accepted. It is set before the first request.
	Tokens *token.Verifier

	store  *store.Store
	found  cache[[sha256.Size]byte, store.Key]
	floors cache[string, time.Time] // by user
}

// NewKeys makes empty caches over the stored keys and revocations.
func NewKeys(s *store.Store) *Keys { return &Keys{store: s} }

// Authorize finds the key that the request carries and tells whether it has one of the scopes. The error has the code
// UNAUTHENTICATED or FORBIDDEN, or UNAVAILABLE when the keys cannot be read.
func (k *Keys) Authorize(r *http.Request, scopes ...string) (store.Key, error) {
	secret, err := bearer(r)
	if err != nil {
		return store.Key{}, err
	}
	return k.authorize(r.Context(), secret, scopes)
}

func (k *Keys) authorize(ctx context.Context, secret string, scopes []string) (store.Key, error) {
	key, err := k.found.get(sha256.Sum256([]byte(secret)), func() (store.Key, error) { return k.store.FindKey(ctx, secret) })
	if err != nil {
		return store.Key{}, err
	}
	if !slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(key.Scopes, s) }) {
		return store.Key{}, tidings.Errorf(tidings.Forbidden, "this call needs a key with the scope %s", strings.Join(scopes, " or "))
	}
	return key, nil
}

// verify returns what a user's token says, unless it is revoked. The error has the code UNAUTHENTICATED, or UNAVAILABLE when the keys
// or the revocations cannot be read.
func (k *Keys) verify(ctx context.Context, text string) (token.Claims, error) {
	if k.Tokens == nil {
		return token.Claims{}, tidings.Errorf(tidings.Unauthenticated, "no users' tokens are accepted here")
	}
	claims, err := k.Tokens.Verify(ctx, text)
	if err != nil {
		return token.Claims{}, err
	}
	floor, err := k.floors.get(claims.User, func() (time.Time, error) { return k.store.TokenFloor(ctx, claims.User) })
	if err != nil {
		return token.Claims{}, err
	}
	if claims.Revoked(floor) {
		return token.Claims{}, tidings.Errorf(tidings.Unauthenticated, "the token is revoked")
	}
	return claims, nil
}

// bearer is the key or token that a request carries.
func bearer(r *http.Request) (string, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if secret = strings.TrimSpace(secret); !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", tidings.Errorf(tidings.Unauthenticated, "the request has no header Authorization: Bearer with an API key or a token")
	}
	return secret, nil
}

// isToken tells a token from an API key, which has no dots.
func isToken(secret string) bool { return strings.Contains(secret, ".") }

// cache keeps what was found for KeyCacheTime. The zero cache is empty.
type cache[K comparable, V any] struct {
	mu    sync.Mutex
	found map[K]cached[V]
}

type cached[V any] struct {
	value V
	until time.Time
}

// get returns what is kept, or what find finds; an error is not kept.
func (c *cache[K, V]) get(key K, find func() (V, error)) (V, error) {
	now := time.Now() // before find: what is found is as old as the question
	c.mu.Lock()
	known, ok := c.found[key]
	c.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.value, nil
	}
	value, err := find()
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil || len(c.found) >= keyCacheSize {
		c.found = map[K]cached[V]{}
	}
	c.found[key] = cached[V]{value, now.Add(KeyCacheTime)}
	return value, nil
}

type (
	byKey    struct{}
	actorKey struct{}
	keyKey   struct{}
)

// actor is the user that a request acts as.
type actor struct {
	user   string
	device string // what the token is bound to; empty: nothing
}

// OperatorHeader names the person on whose behalf a server's key acts. It is believed: whoever has the key can do as much.
const OperatorHeader = "Tidings-Operator"

// UserHeader names the user that a server acts as. The server's key needs the scope act:user; a token may only name its own user.
const UserHeader = "Tidings-User"

// by is who acts, as journals and pauses record it: the user whose token it is, or the key's name and the person that the header names.
func by(ctx context.Context) string {
	who, _ := ctx.Value(byKey{}).(string)
	return who
}

// actingUser is the user that a request acts as: the one whose token it carries, or the one that a server names. The error has the code
// INVALID_ARGUMENT: a server has named nobody.
func actingUser(ctx context.Context) (string, error) {
	if a, ok := ctx.Value(actorKey{}).(actor); ok {
		return a.user, nil
	}
	return "", tidings.Errorf(tidings.InvalidArgument, "the header %s is missing: it names the user to act as", UserHeader)
}

// actingDevice is the device that a request acts from: the named one, or the one that the token is bound to; empty when there is neither.
// The error has the code FORBIDDEN: the token is bound to another device than the named one.
func actingDevice(ctx context.Context, named string) (string, error) {
	a, _ := ctx.Value(actorKey{}).(actor)
	if a.device == "" || a.device == named {
		return named, nil
	}
	if named != "" {
		return "", tidings.Errorf(tidings.Forbidden, "the token is bound to another device")
	}
	return a.device, nil
}

// scopesOf are the scopes of which a key needs one; none: the operation is open.
func scopesOf(op *huma.Operation) (scopes []string) {
	for _, requirement := range op.Security {
		scopes = append(scopes, requirement[securityScheme]...)
	}
	return scopes
}

// ownPath begins the paths that are about one user.
const ownPath = "/v1/users/{user}/"

// takesTokens tells whether a user may call an operation with a token: what is done as a user, and what is about that very user; nothing of an operator's.
func takesTokens(op *huma.Operation) bool {
	return !strings.HasPrefix(op.Path, operatorPath) && slices.Contains(scopesOf(op), store.ScopeActUser) || strings.HasPrefix(op.Path, ownPath)
}

// authenticate admits a request to an operation by the scopes that the operation lists, or by a token; one that lists none is open.
func (a *API) authenticate(ctx huma.Context, next func(huma.Context)) {
	if len(scopesOf(ctx.Operation())) == 0 {
		next(ctx)
		return
	}
	r, w := humago.Unwrap(ctx)
	secret, err := bearer(r)
	if err == nil && isToken(secret) {
		ctx, err = a.admitUser(ctx, r, secret)
	} else if err == nil {
		ctx, err = a.admitKey(ctx, r, secret)
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	next(ctx)
}

// admitUser admits a user by a token, to act as that user alone.
func (a *API) admitUser(ctx huma.Context, r *http.Request, secret string) (huma.Context, error) {
	claims, err := a.keys.verify(r.Context(), secret)
	if err != nil {
		return nil, err
	}
	op := ctx.Operation()
	if !takesTokens(op) {
		return nil, tidings.Errorf(tidings.Forbidden, "this call needs an API key, a user's token does not suffice")
	}
	if strings.HasPrefix(op.Path, ownPath) && ctx.Param("user") != claims.User || r.Header.Get(UserHeader) != "" && r.Header.Get(UserHeader) != claims.User {
		return nil, tidings.Errorf(tidings.Forbidden, "the token is another user's")
	}
	ctx = huma.WithValue(ctx, actorKey{}, actor{claims.User, claims.Device})
	return huma.WithValue(ctx, byKey{}, claims.User), nil
}

// admitKey admits a server by its key; with the scope act:user it acts as the user that it names.
func (a *API) admitKey(ctx huma.Context, r *http.Request, secret string) (huma.Context, error) {
	scopes := scopesOf(ctx.Operation())
	key, err := a.keys.authorize(r.Context(), secret, scopes)
	if err != nil {
		return nil, err
	}
	who := key.Name
	if operator := r.Header.Get(OperatorHeader); operator != "" {
		if err := tidings.CheckID("the header "+OperatorHeader, operator); err != nil {
			return nil, err
		}
		if who += ":" + operator; len(who) > tidings.MaxID {
			return nil, tidings.Errorf(tidings.InvalidArgument, "the header %s and the key's name are longer than %d bytes together", OperatorHeader, tidings.MaxID)
		}
	}
	if user := r.Header.Get(UserHeader); user != "" && slices.Contains(scopes, store.ScopeActUser) {
		if !slices.Contains(key.Scopes, store.ScopeActUser) {
			return nil, tidings.Errorf(tidings.Forbidden, "to act as a user a key needs the scope %s", store.ScopeActUser)
		}
		if err := tidings.CheckID("the header "+UserHeader, user); err != nil {
			return nil, err
		}
		ctx = huma.WithValue(ctx, actorKey{}, actor{user: user})
	}
	return huma.WithValue(huma.WithValue(ctx, keyKey{}, key), byKey{}, who), nil
}

// grantedKey is the key that admitKey has admitted a request by; of a request with a token it is none, without scopes.
func grantedKey(ctx context.Context) store.Key {
	key, _ := ctx.Value(keyKey{}).(store.Key)
	return key
}
