// Package token verifies and issues the tokens by which users authenticate: JSON Web Tokens (RFC 7519) with the claims
//
//	sub  the user, an id
//	aud  must contain the configured audience
//	exp  required
//	iat  when it was issued; a revocation asks for it
//	nbf  optional
//	did  optional: the only device that may use the token, an id
//
// signed with HS256, RS256 or EdDSA (Ed25519). Which of them is accepted follows from the keys that are configured, never from the
// token. What the device claim permits, and whether a token was revoked, is for the caller to judge.
package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidings-project/tidings"
)

// The limits.
const (
	MaxSize   = 8 << 10         // bytes of a token
	MinSecret = 32              // bytes of an HS256 secret: as many as the hash has (RFC 7518, section 3.2)
	MinRSA    = 2048            // bits of an RSA key (RFC 7518, section 3.3)
	MaxRSA    = 8192            // bits of an RSA key: a longer one only costs time
	MaxLeeway = 5 * time.Minute // of Config.Leeway
)

// Claims is what a token says.
type Claims struct {
	User    string
	Device  string    // empty: any device of the user
	Issued  time.Time // zero: the token does not say
	Expires time.Time // as the token says it; the leeway comes on top
}

// Revoked tells whether tokens of the user that were issued before floor are revoked and this is one of them. A token that does not say
// when it was issued falls with the first revocation. The zero floor revokes nothing.
func (c Claims) Revoked(floor time.Time) bool {
	return !floor.IsZero() && c.Issued.Before(floor) // the zero time is before every floor
}

// Config says which tokens are accepted. At least one source of keys is needed.
type Config struct {
	HS256Secret []byte        // at least MinSecret bytes; empty: HS256 is not accepted
	PublicKeys  [][]byte      // PEM texts of public keys, Ed25519 or RSA
	JWKSURL     string        // where a JSON Web Key Set (RFC 7517) is fetched; https, or http on the loopback
	Audience    string        // required
	Leeway      time.Duration // how far the clocks of issuer and verifier may differ, at most MaxLeeway
	Logger      *slog.Logger  // told when keys cannot be fetched
}

// Verifier verifies tokens. Its methods may be called concurrently.
type Verifier struct {
	fixed  []key
	jwks   *jwks // nil without a URL
	parser *jwt.Parser
	leeway time.Duration
	log    *slog.Logger
}

// New makes a Verifier. Nothing is fetched yet: a key set that cannot be reached delays nobody's start.
func New(cfg Config) (*Verifier, error) {
	if cfg.Audience == "" {
		return nil, errors.New("tokens need an audience")
	}
	if cfg.Leeway < 0 || cfg.Leeway > MaxLeeway {
		return nil, fmt.Errorf("the leeway of tokens is at least 0 and at most %v", MaxLeeway)
	}
	v := &Verifier{log: cfg.Logger}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	if len(cfg.HS256Secret) > 0 {
		if err := checkSecret(cfg.HS256Secret); err != nil {
			return nil, err
		}
		v.fixed = append(v.fixed, key{alg: hs256, material: cfg.HS256Secret})
	}
	for i, text := range cfg.PublicKeys {
		keys, err := parsePEM(text)
		if err != nil {
			return nil, fmt.Errorf("read the public keys, text %d: %w", i+1, err)
		}
		v.fixed = append(v.fixed, keys...)
	}
	if cfg.JWKSURL != "" {
		var err error
		if v.jwks, err = newJWKS(cfg.JWKSURL); err != nil {
			return nil, err
		}
	}
	var methods []string
	for _, k := range v.fixed {
		methods = append(methods, k.alg)
	}
	if v.jwks != nil {
		methods = append(methods, rs256, edDSA)
	}
	if len(methods) == 0 {
		return nil, errors.New("tokens need a secret, a public key or the URL of a key set")
	}
	v.parser = jwt.NewParser(jwt.WithValidMethods(methods), jwt.WithAudience(cfg.Audience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(cfg.Leeway), jwt.WithStrictDecoding())
	v.leeway = cfg.Leeway
	return v, nil
}

// Verify returns what a token says. The error has the code UNAUTHENTICATED, or UNAVAILABLE when the token may be good but the keys that
// would tell cannot be fetched.
func (v *Verifier) Verify(ctx context.Context, text string) (Claims, error) {
	if len(text) > MaxSize {
		return Claims{}, refused("is longer than the %d bytes that are allowed", MaxSize)
	}
	keys := v.fixed
	if v.jwks != nil {
		keys = append(slices.Clip(keys), v.jwks.held()...)
	}
	claims, wanting, err := v.parse(text, keys)
	if !wanting || v.jwks == nil {
		return claims, err
	}
	fetched, err := v.jwks.renew(ctx, context.WithoutCancel(ctx)) // a request that is given up must not fail the others that wait
	if err != nil {
		return Claims{}, &tidings.Error{Code: tidings.Unavailable, Message: "the keys of tokens cannot be fetched", Err: err}
	}
	claims, _, err = v.parse(text, append(slices.Clip(v.fixed), fetched...))
	return claims, err
}

// Run keeps the key set fresh until ctx ends. Without a key set it returns at once.
func (v *Verifier) Run(ctx context.Context) {
	if v.jwks == nil {
		return
	}
	for ctx.Err() == nil {
		wait := v.jwks.refresh
		if _, err := v.jwks.renew(ctx, ctx); err != nil {
			wait = v.jwks.retry
			if ctx.Err() == nil {
				v.log.WarnContext(ctx, "the keys of tokens could not be fetched", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// parse judges a token by the given keys. wanting tells that a key that is not among them could have signed it.
func (v *Verifier) parse(text string, keys []key) (c Claims, wanting bool, err error) {
	said := jwt.MapClaims{} // by exact name: a struct would also take "SUB" for sub
	_, err = v.parser.ParseWithClaims(text, said, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("extensions are not understood") // RFC 7515, section 4.1.11: then the token must be refused
		}
		kid, named := t.Header["kid"].(string)
		if _, there := t.Header["kid"]; there && !named {
			return nil, errors.New("the kid is not a string")
		}
		set, hit := candidates(keys, t.Method.Alg(), kid)
		wanting = !hit && t.Method.Alg() != hs256
		return set, nil
	})
	if err != nil {
		bySignature := errors.Is(err, jwt.ErrTokenSignatureInvalid) || errors.Is(err, jwt.ErrTokenUnverifiable)
		return Claims{}, wanting && bySignature, reason(err)
	}
	c, err = read(said)
	return c, false, err
}

// Leeway is how long after its end a token is accepted. A nil Verifier has none.
func (v *Verifier) Leeway() time.Duration {
	if v == nil {
		return 0
	}
	return v.leeway
}

// read takes the claims out of a verified token.
func read(said jwt.MapClaims) (c Claims, err error) {
	user, ok := said["sub"].(string)
	if !ok || tidings.CheckID("sub", user) != nil {
		return Claims{}, refused("has no user id as sub")
	}
	c.User = user
	if did, there := said["did"]; there {
		if c.Device, ok = did.(string); !ok || tidings.CheckID("did", c.Device) != nil {
			return Claims{}, refused("has a did that is no device id")
		}
	}
	if _, err = instant(said, "nbf"); err != nil {
		return Claims{}, err
	}
	if c.Issued, err = instant(said, "iat"); err != nil {
		return Claims{}, err
	}
	if c.Expires, err = instant(said, "exp"); err != nil {
		return Claims{}, err
	}
	return c, nil
}

// maxInstant bounds the seconds of a time: the year 9999. Far beyond, a comparison of times would overflow.
const maxInstant = 253402300799

// instant is a claim that is a time, to the microsecond; zero when it is absent. The parser's own reading has cut the fraction off.
func instant(said jwt.MapClaims, name string) (time.Time, error) {
	value, there := said[name]
	if !there {
		return time.Time{}, nil
	}
	seconds, ok := value.(float64)
	if !ok || seconds < 0 || seconds > maxInstant {
		return time.Time{}, refused("has an %s that is no time", name)
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6))), nil
}

// reason is the answer to what the parser found. It quotes nothing of the token.
func reason(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return refused("is not a JSON Web Token")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenUnverifiable):
		return refused("is not signed with a key and by a method that are accepted")
	case errors.Is(err, jwt.ErrTokenExpired):
		return refused("has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return refused("is not valid yet")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return refused("lacks a claim: aud and exp are required")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return refused("is for another audience")
	}
	return refused("has a claim of the wrong type")
}

func refused(format string, args ...any) error {
	return tidings.Errorf(tidings.Unauthenticated, "the token "+format, args...)
}

// IssueHS256 makes a token, for development and for servers that share the secret. A zero Issued is left out; Expires is required.
// Times are cut to milliseconds.
func IssueHS256(secret []byte, audience string, c Claims) (string, error) {
	if err := checkSecret(secret); err != nil {
		return "", err
	}
	if err := tidings.CheckID("the user", c.User); err != nil {
		return "", err
	}
	if audience == "" || c.Expires.IsZero() {
		return "", errors.New("a token needs an audience and an end")
	}
	said := jwt.MapClaims{"sub": c.User, "aud": audience, "exp": float64(c.Expires.UnixMilli()) / 1000}
	if !c.Issued.IsZero() {
		said["iat"] = float64(c.Issued.UnixMilli()) / 1000
	}
	if c.Device != "" {
		if err := tidings.CheckID("the device", c.Device); err != nil {
			return "", err
		}
		said["did"] = c.Device
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, said).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return text, nil
}

func checkSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("the secret of HS256 has %d bytes, at least %d are needed", len(secret), MinSecret)
	}
	return nil
}
