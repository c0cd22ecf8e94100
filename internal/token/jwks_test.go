// Tests of key sets that are fetched.

package token

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidings-project/tidings"
)

// issuer is a server whose answer can be exchanged.
type issuer struct {
	*httptest.Server
	asked  atomic.Int32
	answer atomic.Pointer[http.HandlerFunc]
}

func newIssuer(t testing.TB, keys ...string) *issuer {
	i := &issuer{}
	i.publish(keys...)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asked.Add(1)
		(*i.answer.Load())(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) do(f http.HandlerFunc) { i.answer.Store(&f) }

func (i *issuer) publish(keys ...string) {
	i.do(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"keys":[%s]}`, strings.Join(keys, ",")) })
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func edJWK(kid string, private ed25519.PrivateKey) string {
	return fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}`, kid, b64(private.Public().(ed25519.PublicKey)))
}

func rsaJWK(kid string, public *rsa.PublicKey, more string) string {
	return fmt.Sprintf(`{"kty":"RSA","kid":%q,"n":%q,"e":%q%s}`, kid, b64(public.N.Bytes()), b64(big.NewInt(int64(public.E)).Bytes()), more)
}

// jwksVerifier is a Verifier that fetches without the long pauses.
func jwksVerifier(t testing.TB, url string, more ...[]byte) *Verifier {
	v := verifier(t, Config{JWKSURL: url, PublicKeys: more})
	v.jwks.renewGap, v.jwks.failGap = 0, 0
	return v
}

func (v *Verifier) code(t testing.TB, text string) tidings.Code {
	_, err := v.Verify(t.Context(), text)
	return tidings.ErrorCode(err)
}

func TestKeySet(t *testing.T) {
	i := newIssuer(t, `{"kty":"EC","crv":"P-256","kid":"ec","x":"AA","y":"AA"}`, `{"kty":"oct","kid":"hmac","k":"`+b64(secret)+`"}`, `7`, `{"kty":"RSA","n":7}`,
		edJWK("ed", edKey), rsaJWK("rsa", &rsaKey.PublicKey, `,"use":"sig","alg":"RS256","key_ops":["verify"]`))
	v := jwksVerifier(t, i.URL)
	for name, text := range map[string]string{
		"EdDSA":         sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), "kid", "ed"),
		"EdDSA, no kid": sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil)),
		"RS256":         sign(t, jwt.SigningMethodRS256, rsaKey, claims(nil), "kid", "rsa"),
		"RS256, no kid": sign(t, jwt.SigningMethodRS256, rsaKey, claims(nil)),
	} {
		if code := v.code(t, text); code != "" {
			t.Errorf("%s: %s", name, code)
		}
	}
	if n := i.asked.Load(); n != 1 {
		t.Errorf("the key set was fetched %d times", n)
	}
	for name, text := range map[string]string{
		"a secret that the set publishes": sign(t, jwt.SigningMethodHS256, secret, claims(nil), "kid", "hmac"),
		"the kid of another key":          sign(t, jwt.SigningMethodEdDSA, strangeKey, claims(nil), "kid", "ed"),
		"the kid of another method's key": sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), "kid", "rsa"),
		"expired":                         sign(t, jwt.SigningMethodEdDSA, edKey, claims(jwt.MapClaims{"exp": 7}), "kid", "ed"),
	} {
		if code := v.code(t, text); code != tidings.Unauthenticated {
			t.Errorf("%s: %s", name, code)
		}
	}
}

func TestKeysOfNoUse(t *testing.T) {
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{
		"a short key":              rsaJWK("k", &short.PublicKey, ""),
		"a key for encryption":     rsaJWK("k", &rsaKey.PublicKey, `,"use":"enc"`),
		"a key for other uses":     rsaJWK("k", &rsaKey.PublicKey, `,"key_ops":["encrypt"]`),
		"a key for another method": rsaJWK("k", &rsaKey.PublicKey, `,"alg":"PS256"`),
		"an even exponent":         rsaJWK("k", &rsa.PublicKey{N: rsaKey.N, E: 65536}, ""),
		"the exponent 1":           rsaJWK("k", &rsa.PublicKey{N: rsaKey.N, E: 1}, ""),
		"a long exponent":          strings.Replace(rsaJWK("k", &rsaKey.PublicKey, ""), `"AQAB"`, `"AQABAQABAQAB"`, 1),
		"a cut Ed25519 key":        `{"kty":"OKP","crv":"Ed25519","kid":"k","x":"AAAA"}`,
		"another curve":            `{"kty":"OKP","crv":"X25519","kid":"k","x":"` + b64(edKey.Public().(ed25519.PublicKey)) + `"}`,
	} {
		keys, err := parseJWKS([]byte(`{"keys":[` + key + `]}`))
		if err != nil || len(keys) != 0 {
			t.Errorf("%s: %d keys, %v", name, len(keys), err)
		}
	}
	if keys, err := parseJWKS([]byte(`{"keys":[` + rsaJWK("k", &rsaKey.PublicKey, "") + `]}`)); err != nil || len(keys) != 1 {
		t.Errorf("the key that the others were made of: %v, %v", keys, err)
	}
}

// A key that replaced another is found by its kid, once; the other one is believed no longer.
func TestRotation(t *testing.T) {
	i := newIssuer(t, edJWK("old", edKey))
	v := jwksVerifier(t, i.URL)
	before := sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), "kid", "old")
	after := sign(t, jwt.SigningMethodEdDSA, strangeKey, claims(nil), "kid", "new")
	if code := v.code(t, before); code != "" {
		t.Fatalf("the first key: %s", code)
	}
	if code := v.code(t, after); code != tidings.Unauthenticated {
		t.Fatalf("a key that is not published yet: %q", code)
	}
	i.publish(edJWK("new", strangeKey))
	if code := v.code(t, after); code != "" {
		t.Errorf("the second key: %s", code)
	}
	if code := v.code(t, before); code != tidings.Unauthenticated {
		t.Errorf("the first key afterwards: %q", code)
	}
	i.publish()
	if code := v.code(t, before); code != tidings.Unauthenticated {
		t.Errorf("no key at all: %q", code)
	}
	if code := v.code(t, after); code != tidings.Unauthenticated {
		t.Errorf("a key that was withdrawn: %q", code)
	}
}

// However many unknown kids come, the set is fetched no oftener than stated.
func TestUnknownKidsAreBounded(t *testing.T) {
	i := newIssuer(t, edJWK("ed", edKey))
	v := jwksVerifier(t, i.URL)
	v.jwks.renewGap = time.Hour
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			text := sign(t, jwt.SigningMethodEdDSA, strangeKey, claims(nil), "kid", fmt.Sprint(n))
			if code := v.code(t, text); code != tidings.Unauthenticated {
				t.Errorf("an unknown kid: %q", code)
			}
		})
	}
	all.Wait()
	if n := i.asked.Load(); n != 1 {
		t.Errorf("the key set was fetched %d times", n)
	}
}

// A set that cannot be fetched makes no token a bad one, but one that no key of it could sign is.
func TestUnreachable(t *testing.T) {
	i := newIssuer(t, edJWK("ed", edKey))
	good := sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), "kid", "ed")
	other := sign(t, jwt.SigningMethodRS256, rsaKey, claims(nil), "kid", "pem")
	elsewhere := newIssuer(t)
	for name, answer := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"no set":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) },
		"an endless": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[`+strings.Repeat(" ", maxJWKS)+`]}`)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"a cut answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, "{")
		},
		"a crowd": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"keys":[%s]}`, strings.Repeat(edJWK("x", edKey)+",", maxKeys)+edJWK("x", edKey))
		},
	} {
		v := jwksVerifier(t, i.URL, pemOf(t, &rsaKey.PublicKey))
		i.do(answer)
		if code := v.code(t, good); code != tidings.Unavailable {
			t.Errorf("%s at the start: %q", name, code)
		}
		if code := v.code(t, other); code != "" {
			t.Errorf("%s, and a token of a key from elsewhere: %s", name, code)
		}
		for _, text := range []string{"a.b.c", sign(t, jwt.SigningMethodHS256, secret, claims(nil)), sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil))} {
			if code := v.code(t, text); code != tidings.Unauthenticated {
				t.Errorf("%s, and a token that no key of the set can have signed: %q", name, code)
			}
		}
		i.publish(edJWK("ed", edKey))
		if code := v.code(t, good); code != "" {
			t.Errorf("after %s: %s", name, code)
		}
		i.do(answer)
		if code := v.code(t, good); code != "" {
			t.Errorf("%s while the key is known: %s", name, code)
		}
		if code := v.code(t, sign(t, jwt.SigningMethodEdDSA, strangeKey, claims(nil), "kid", "new")); code != tidings.Unavailable {
			t.Errorf("%s, and a kid that may be new: %q", name, code)
		}
		v.jwks.believe = 0
		if code := v.code(t, good); code != tidings.Unavailable {
			t.Errorf("%s for too long: %q", name, code)
		}
	}
	if n := elsewhere.asked.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
	i.Close()
	if code := jwksVerifier(t, i.URL).code(t, good); code != tidings.Unavailable {
		t.Errorf("nobody listens: %q", code)
	}
}

// A request that is given up leaves at once, and takes no answer from the others.
func TestGivenUp(t *testing.T) {
	i := newIssuer(t)
	arrived, open := make(chan struct{}), make(chan struct{})
	i.do(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-open
		fmt.Fprintf(w, `{"keys":[%s]}`, edJWK("ed", edKey))
	})
	v := jwksVerifier(t, i.URL)
	v.jwks.renewGap = time.Hour
	good := sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), "kid", "ed")
	first, giveUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := v.Verify(first, good); done <- err }()
	<-arrived
	giveUp()
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Verify(waiting, good); tidings.ErrorCode(err) != tidings.Unavailable {
		t.Errorf("one that waits and is given up: %v", err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Errorf("the one that fetches: %v", err)
	}
	if code := v.code(t, good); code != "" || i.asked.Load() != 1 {
		t.Errorf("the next one: %q after %d fetches", code, i.asked.Load())
	}
}

func TestRun(t *testing.T) {
	i := newIssuer(t)
	i.do(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	var log bytes.Buffer
	v := verifier(t, Config{JWKSURL: i.URL, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	v.jwks.refresh, v.jwks.retry, v.jwks.renewGap, v.jwks.failGap = 5*time.Millisecond, 5*time.Millisecond, 0, 0
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { v.Run(ctx) })
	until(t, "the set is asked for again after a failure", func() bool { return i.asked.Load() >= 2 })
	i.publish(edJWK("one", edKey))
	until(t, "the first key arrives", func() bool { return len(v.jwks.held()) == 1 })
	i.publish(edJWK("one", edKey), edJWK("two", strangeKey))
	until(t, "the second key arrives", func() bool { return len(v.jwks.held()) == 2 })
	stop()
	running.Wait()
	var line map[string]any
	if err := json.Unmarshal(bytes.SplitN(log.Bytes(), []byte("\n"), 2)[0], &line); err != nil || !strings.Contains(fmt.Sprint(line["error"]), "500") {
		t.Errorf("the log is %s, %v", log.Bytes(), err)
	}
	verifier(t, Config{HS256Secret: secret}).Run(t.Context()) // has nothing to do
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not happen that %s", what)
		}
	}
}
