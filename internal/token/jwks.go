// Key sets that are fetched: cache, refresh, bounds.

package token

import (
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// The times of a key set.
const (
	RefreshEach = 5 * time.Minute  // how often it is fetched without need: a key that was withdrawn is believed no longer than that
	RetryEach   = 15 * time.Second // the same after a failure
	RenewEach   = 10 * time.Second // how often at most an unknown kid makes it be fetched
	FailedFor   = time.Second      // how long a failure answers for another try
	BelieveFor  = 24 * time.Hour   // how long it is used when it cannot be fetched any more

	fetchTimeout = 5 * time.Second
	maxJWKS      = 256 << 10 // bytes
	maxKeys      = 64        // that are used: each may be tried for a token without a kid
)

// jwks is a key set that is fetched.
type jwks struct {
	url    string
	client *http.Client

	refresh, retry, renewGap, failGap, believe time.Duration

	turn chan struct{} // held by the one that fetches

	mu     sync.Mutex
	keys   []key
	got    time.Time // when keys were fetched; zero: never
	tried  time.Time // when the last fetch ended
	failed error     // how it ended
}

func newJWKS(address string) (*jwks, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("read the URL of the key set: %w", err)
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback) {
		return nil, errors.New("the URL of the key set must be https, or http on the loopback: whoever can change the answer can sign tokens")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // it is asked once in minutes
	transport.MaxResponseHeaderBytes = 64 << 10
	return &jwks{url: address, turn: make(chan struct{}, 1),
		client: &http.Client{Transport: transport, Timeout: fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		refresh: RefreshEach, retry: RetryEach, renewGap: RenewEach, failGap: FailedFor, believe: BelieveFor}, nil
}

// held is the keys as they were fetched last; none when that is too long ago.
func (j *jwks) held() []key {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.got.IsZero() || time.Since(j.got) > j.believe {
		return nil
	}
	return j.keys
}

// renew fetches the keys, unless that was tried a moment ago: then what came of that is the answer. Callers wait for each other, each
// as long as its ctx allows; the fetch itself ends with fetching.
func (j *jwks) renew(ctx, fetching context.Context) ([]key, error) {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the key set: %w", ctx.Err())
	}
	if keys, err, recent := j.last(); recent {
		return keys, err
	}
	keys, err := j.fetch(fetching)
	if fetching.Err() != nil {
		return nil, err // given up: that says nothing about the key set
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tried, j.failed = time.Now(), err
	if err != nil {
		return nil, err
	}
	j.keys, j.got = keys, j.tried
	return keys, nil
}

// last is how the last fetch ended, if that was a moment ago.
func (j *jwks) last() (keys []key, err error, recent bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	gap := j.renewGap
	if j.failed != nil {
		gap = j.failGap
	}
	if j.tried.IsZero() || time.Since(j.tried) >= gap {
		return nil, nil, false
	}
	return j.keys, j.failed, true
}

func (j *jwks) fetch(ctx context.Context) ([]key, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", err)
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := j.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch the key set: the answer is %s", answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxJWKS+1))
	if err != nil {
		return nil, fmt.Errorf("fetch the key set: %w", err)
	}
	if len(text) > maxJWKS {
		return nil, fmt.Errorf("fetch the key set: it is longer than %d bytes", maxJWKS)
	}
	keys, err := parseJWKS(text)
	if err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	return keys, nil
}

// jwk is one key of a set (RFC 7517, RFC 7518 section 6.3, RFC 8037).
type jwk struct {
	Kty    string   `json:"kty"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Kid    string   `json:"kid"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	Crv    string   `json:"crv"`
	X      string   `json:"x"`
}

// parseJWKS reads a key set. A key that is of no use here, of another kind or too weak, is left out: a set may have keys for others,
// too (RFC 7517, section 5).
func parseJWKS(text []byte) ([]key, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is not JSON of the expected shape: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("it has no keys") // an empty list withdraws all keys; this is something else
	}
	keys := []key{}
	for _, raw := range *set.Keys {
		var k jwk
		if json.Unmarshal(raw, &k) != nil {
			continue
		}
		if usable, err := k.key(); err == nil {
			keys = append(keys, usable)
		}
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys for signatures, at most %d are accepted", len(keys), maxKeys)
	}
	return keys, nil
}

// errOther says that a key is for something else.
var errOther = errors.New("it is not a key for RS256 or EdDSA")

func (k jwk) key() (key, error) {
	if k.Use != "" && k.Use != "sig" || k.KeyOps != nil && !slices.Contains(k.KeyOps, "verify") {
		return key{}, errOther
	}
	switch {
	case k.Kty == "RSA" && (k.Alg == "" || k.Alg == rs256):
		n, err := base64.RawURLEncoding.DecodeString(k.N)
		if err != nil {
			return key{}, fmt.Errorf("read n: %w", err)
		}
		e, err := base64.RawURLEncoding.DecodeString(k.E)
		if err != nil {
			return key{}, fmt.Errorf("read e: %w", err)
		}
		exponent := new(big.Int).SetBytes(e)
		if exponent.BitLen() > 31 {
			return key{}, errors.New("the exponent is too large")
		}
		return newKey(k.Kid, &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())})
	case k.Kty == "OKP" && k.Crv == "Ed25519" && (k.Alg == "" || k.Alg == edDSA):
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return key{}, errors.New("x is not an Ed25519 key")
		}
		return newKey(k.Kid, ed25519.PublicKey(x))
	}
	return key{}, errOther
}
