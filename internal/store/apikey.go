// API keys.

package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// The scopes that a key can have.
const (
	ScopeNotify  = "notify"   // submit, read and cancel notifications
	ScopePrefs   = "prefs"    // read and write preferences, opt-outs and quiet hours
	ScopeReview  = "review"   // read and settle parked tasks
	ScopeOperate = "operate"  // see what is going on, without content; pause and resume channels
	ScopeBodies  = "bodies"   // with operate: read the content of conversations, which is logged
	ScopeMetrics = "metrics"  // read metrics
	ScopeActUser = "act:user" // act in the name of a user

	ScopeConversations = "conversations" // create conversations, change their settings and members
)

// Scopes lists every scope.
var Scopes = []string{ScopeNotify, ScopePrefs, ScopeReview, ScopeOperate, ScopeBodies, ScopeMetrics, ScopeActUser, ScopeConversations}

// keyPrefix makes a key recognisable, for people and for those who look for secrets in the wrong places.
const keyPrefix = "tdk_"

// Key is an API key without its secret.
type Key struct {
	ID        tidings.UUID `json:"id"`
	Name      string       `json:"name"`
	Scopes    []string     `json:"scopes"`
	CreatedAt time.Time    `json:"created_at"`
	RevokedAt *time.Time   `json:"revoked_at,omitempty"`
}

// createKeySQL stores a key's hash.
const createKeySQL = `INSERT INTO tidings.api_key (name, hash, scopes, created_at)
	VALUES (@name, @hash, @scopes, statement_timestamp()) RETURNING id`

// CreateKey makes a key of 256 random bits. The secret is returned this once; only its SHA-256 is stored, which is enough
// for a secret that nobody could guess.
func (s *Store) CreateKey(ctx context.Context, name string, scopes []string) (secret string, id tidings.UUID, err error) {
	if name == "" || len(name) > tidings.MaxID {
		return "", id, tidings.Errorf(tidings.InvalidArgument, "a key needs a name of at most %d bytes", tidings.MaxID)
	}
	if len(scopes) == 0 {
		return "", id, tidings.Errorf(tidings.InvalidArgument, "a key without a scope may do nothing")
	}
	for _, scope := range scopes {
		if !slices.Contains(Scopes, scope) {
			return "", id, tidings.Errorf(tidings.InvalidArgument, "there is no scope %q", scope)
		}
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = keyPrefix + base64.RawURLEncoding.EncodeToString(random)
	err = s.write(ctx, "create a key", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, createKeySQL, pgx.NamedArgs{"name": name, "hash": keyHash(secret), "scopes": scopes}).Scan(&id)
	})
	if err != nil {
		return "", id, err
	}
	return secret, id, nil
}

func keyHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

const keyColumns = `k.id, k.name, k.scopes, k.created_at, k.revoked_at`

// findKeySQL finds a key through the unique index on its hash.
const findKeySQL = `SELECT ` + keyColumns + ` FROM tidings.api_key k WHERE k.hash = @hash AND k.revoked_at IS NULL`

// FindKey returns the key of a secret. The error is UNAUTHENTICATED when it is unknown or revoked.
func (s *Store) FindKey(ctx context.Context, secret string) (Key, error) {
	rows, err := s.pool.Query(ctx, findKeySQL, pgx.NamedArgs{"hash": keyHash(secret)})
	if err != nil {
		return Key{}, unchanged("look up a key", err)
	}
	key, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Key])
	if errors.Is(err, pgx.ErrNoRows) {
		return Key{}, tidings.Errorf(tidings.Unauthenticated, "the key is unknown or revoked")
	}
	return key, unchanged("look up a key", err)
}

// keysSQL reads the small table of keys.
const keysSQL = `SELECT ` + keyColumns + ` FROM tidings.api_key k ORDER BY k.created_at, k.id`

// ListKeys returns all keys, oldest first, revoked ones too.
func (s *Store) ListKeys(ctx context.Context) ([]Key, error) {
	rows, err := s.pool.Query(ctx, keysSQL)
	if err != nil {
		return nil, unchanged("list keys", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
	return keys, unchanged("list keys", err)
}

// revokeKeySQL revokes a key by primary key; the first revocation's time stands.
const revokeKeySQL = `WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now_at)
	UPDATE tidings.api_key k SET revoked_at = coalesce(k.revoked_at, c.now_at) FROM clock c WHERE k.id = @id`

// RevokeKey revokes a key for good; revoking it again changes nothing. The error is NOT_FOUND when there is none.
func (s *Store) RevokeKey(ctx context.Context, id tidings.UUID) error {
	found, err := s.changed(ctx, "revoke a key", revokeKeySQL, pgx.NamedArgs{"id": id})
	if err == nil && !found {
		err = tidings.Errorf(tidings.NotFound, "there is no such key")
	}
	return err
}
