// Tests of how tokens are judged.

package token

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const audience = "tidings-test"

var (
	secret           = []byte("0123456789abcdef0123456789abcdef")
	rsaKey, _        = rsa.GenerateKey(rand.Reader, MinRSA)
	_, edKey, _      = ed25519.GenerateKey(rand.Reader)
	_, strangeKey, _ = ed25519.GenerateKey(rand.Reader)
)

func pemOf(t testing.TB, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func verifier(t testing.TB, cfg Config) *Verifier {
	t.Helper()
	cfg.Audience = audience
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// claims is a good token's, with changes; a nil value takes a claim away.
func claims(changes jwt.MapClaims) jwt.MapClaims {
	now := float64(time.Now().Unix())
	c := jwt.MapClaims{"sub": "u-ana", "aud": audience, "iat": now, "exp": now + 60}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

func sign(t testing.TB, method jwt.SigningMethod, key any, c jwt.MapClaims, header ...string) string {
	t.Helper()
	tok := jwt.NewWithClaims(method, c)
	for i := 0; i < len(header); i += 2 {
		tok.Header[header[i]] = header[i+1]
	}
	text, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func hs(t testing.TB, changes jwt.MapClaims) string {
	return sign(t, jwt.SigningMethodHS256, secret, claims(changes))
}

func TestGoodTokens(t *testing.T) {
	v := verifier(t, Config{HS256Secret: secret, PublicKeys: [][]byte{append(pemOf(t, &rsaKey.PublicKey), pemOf(t, edKey.Public())...)}, Leeway: 30 * time.Second})
	now := float64(time.Now().Unix())
	for name, text := range map[string]string{
		"HS256":                           hs(t, nil),
		"RS256":                           sign(t, jwt.SigningMethodRS256, rsaKey, claims(nil)),
		"EdDSA":                           sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil)),
		"a kid that no key has":           sign(t, jwt.SigningMethodEdDSA, edKey, claims(nil), "kid", "x"),
		"several audiences":               hs(t, jwt.MapClaims{"aud": []string{"other", audience}}),
		"a claim that looks like another": hs(t, jwt.MapClaims{"SUB": "u-eve", "Did": 7, "zUb": 1}),
		"an end within the leeway":        hs(t, jwt.MapClaims{"exp": now - 10}),
		"a beginning within the leeway":   hs(t, jwt.MapClaims{"nbf": now + 10, "iat": now + 10}),
	} {
		c, err := v.Verify(t.Context(), text)
		if err != nil || c.User != "u-ana" || c.Device != "" || c.Issued.IsZero() || c.Expires.IsZero() {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestIssued(t *testing.T) {
	v := verifier(t, Config{HS256Secret: secret})
	want := Claims{User: "u-ana", Device: "u-ana-d1", Issued: time.UnixMilli(time.Now().UnixMilli()), Expires: time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())}
	text, err := IssueHS256(secret, audience, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Verify(t.Context(), text)
	if err != nil || got.User != want.User || got.Device != want.Device || !got.Issued.Equal(want.Issued) || !got.Expires.Equal(want.Expires) {
		t.Errorf("issued %+v, verified %+v, %v", want, got, err)
	}
	for name, c := range map[string]Claims{
		"no user":   {Expires: want.Expires},
		"no end":    {User: "u"},
		"no device": {User: "u", Device: "a b", Expires: want.Expires},
	} {
		if _, err := IssueHS256(secret, audience, c); err == nil {
			t.Errorf("a token with %s is issued", name)
		}
	}
	if _, err := IssueHS256(secret[1:], audience, want); err == nil {
		t.Error("a short secret signs")
	}
	if _, err := IssueHS256(secret, "", want); err == nil {
		t.Error("a token without audience is issued")
	}
}

func TestRefused(t *testing.T) {
	public := pemOf(t, &rsaKey.PublicKey)
	all := verifier(t, Config{HS256Secret: secret, PublicKeys: [][]byte{public, pemOf(t, edKey.Public())}, Leeway: 30 * time.Second})
	onlyRSA := verifier(t, Config{PublicKeys: [][]byte{public}})
	onlyHS := verifier(t, Config{HS256Secret: secret})
	now := float64(time.Now().Unix())
	good := hs(t, nil)
	unsigned := good[:strings.LastIndex(good, ".")+1]
	none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil))
	b64 := base64.RawURLEncoding.EncodeToString

	for _, c := range []struct {
		name string
		v    *Verifier
		text string
		says string // a word of the reason
	}{
		{"alg none", all, none, "not signed"},
		{"alg None", all, b64([]byte(`{"alg":"None"}`)) + none[strings.Index(none, "."):], "not signed"},
		{"no alg", all, b64([]byte(`{"typ":"JWT"}`)) + none[strings.Index(none, "."):], "not signed"},
		{"no signature", all, unsigned, "not signed"},
		{"a public key as HMAC secret", all, sign(t, jwt.SigningMethodHS256, public, claims(nil)), "not signed"},
		{"a public key as HMAC secret where no HS256 is", onlyRSA, sign(t, jwt.SigningMethodHS256, public, claims(nil)), "not signed"},
		{"a method that no key has", onlyHS, sign(t, jwt.SigningMethodRS256, rsaKey, claims(nil)), "not signed"},
		{"HS512 with the secret", all, sign(t, jwt.SigningMethodHS512, secret, claims(nil)), "not signed"},
		{"RS512 with the key", all, sign(t, jwt.SigningMethodRS512, rsaKey, claims(nil)), "not signed"},
		{"PS256 with the key", all, sign(t, jwt.SigningMethodPS256, rsaKey, claims(nil)), "not signed"},
		{"another secret", all, sign(t, jwt.SigningMethodHS256, []byte("another secret of the same kind!"), claims(nil)), "not signed"},
		{"another key", all, sign(t, jwt.SigningMethodEdDSA, strangeKey, claims(nil)), "not signed"},
		{"a critical extension", all, sign(t, jwt.SigningMethodHS256, secret, claims(nil), "crit", "exp"), "not signed"},
		{"other claims under the signature", all, strings.Join([]string{strings.Split(good, ".")[0], b64([]byte(`{"sub":"u-eve"}`)), strings.Split(good, ".")[2]}, "."), "not signed"},
		{"expired", all, hs(t, jwt.MapClaims{"exp": now - 40}), "expired"},
		{"no exp", all, hs(t, jwt.MapClaims{"exp": nil}), "lacks"},
		{"exp null", all, sign(t, jwt.SigningMethodHS256, secret, jwt.MapClaims{"sub": "u", "aud": audience, "exp": nil}), "wrong type"},
		{"exp as text", all, hs(t, jwt.MapClaims{"exp": "2099"}), "wrong type"},
		{"exp beyond all times", all, hs(t, jwt.MapClaims{"exp": 1e300}), ""},
		{"nbf beyond all times", all, hs(t, jwt.MapClaims{"nbf": 1e300}), ""},
		{"iat beyond all times", all, hs(t, jwt.MapClaims{"iat": 1e300}), ""},
		{"iat below all times", all, hs(t, jwt.MapClaims{"iat": -1e300}), ""},
		{"not valid yet", all, hs(t, jwt.MapClaims{"nbf": now + 40}), "yet"},
		{"issued in the future", all, hs(t, jwt.MapClaims{"iat": now + 40}), "yet"},
		{"another audience", all, hs(t, jwt.MapClaims{"aud": "other"}), "audience"},
		{"no audience", all, hs(t, jwt.MapClaims{"aud": nil}), "lacks"},
		{"no sub", all, hs(t, jwt.MapClaims{"sub": nil}), "sub"},
		{"a sub that is no id", all, hs(t, jwt.MapClaims{"sub": "u/ana"}), "sub"},
		{"a sub that is a number", all, hs(t, jwt.MapClaims{"sub": 7}), "sub"},
		{"a did that is no id", all, hs(t, jwt.MapClaims{"did": ""}), "did"},
		{"a did that is a list", all, hs(t, jwt.MapClaims{"did": []string{"d"}}), "did"},
		{"huge", all, hs(t, jwt.MapClaims{"x": strings.Repeat("x", MaxSize)}), "longer"},
		{"huge with few dots", all, strings.Repeat(".", MaxSize+1), "longer"},
		{"dots", all, strings.Repeat(".", MaxSize), "not a JSON"},
		{"empty", all, "", "not a JSON"},
		{"no JSON", all, "a.b.c", "not a JSON"},
		{"a kid that is no text", all, numberedKid(t), "not signed"},
	} {
		_, err := c.v.Verify(t.Context(), c.text)
		if tidings.ErrorCode(err) != tidings.Unauthenticated || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := all.Verify(t.Context(), good); err != nil {
		t.Errorf("the token that the bad ones were made of: %v", err)
	}
}

func numberedKid(t testing.TB) string {
	tok := jwt.NewWithClaims(jwt.SigningMethodHS256, claims(nil))
	tok.Header["kid"] = 7
	text, err := tok.SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The device is the caller's to judge; here it only has to come through.
func TestDevice(t *testing.T) {
	c, err := verifier(t, Config{HS256Secret: secret}).Verify(t.Context(), hs(t, jwt.MapClaims{"did": "u-ana-d1"}))
	if err != nil || c.Device != "u-ana-d1" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRevoked(t *testing.T) {
	floor := time.Now()
	for name, c := range map[string]struct {
		issued, floor time.Time
		want          bool
	}{
		"no floor":                      {floor, time.Time{}, false},
		"no iat and no floor":           {time.Time{}, time.Time{}, false},
		"no iat":                        {time.Time{}, floor, true},
		"issued before":                 {floor.Add(-time.Microsecond), floor, true},
		"issued at the floor":           {floor, floor, false},
		"issued after":                  {floor.Add(time.Microsecond), floor, false},
		"issued at the epoch of clocks": {time.Unix(0, 0), floor, true},
	} {
		if got := (Claims{Issued: c.issued}).Revoked(c.floor); got != c.want {
			t.Errorf("%s: revoked is %v", name, got)
		}
	}
}

func TestConfig(t *testing.T) {
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(edKey)
	if err != nil {
		t.Fatal(err)
	}
	good := pemOf(t, edKey.Public())
	for name, cfg := range map[string]Config{
		"no audience":                {HS256Secret: secret},
		"no keys":                    {Audience: audience},
		"a short secret":             {Audience: audience, HS256Secret: secret[1:]},
		"a short RSA key":            {Audience: audience, PublicKeys: [][]byte{pemOf(t, &short.PublicKey)}},
		"a private key":              {Audience: audience, PublicKeys: [][]byte{pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}},
		"no PEM":                     {Audience: audience, PublicKeys: [][]byte{[]byte("key")}},
		"something after a key":      {Audience: audience, PublicKeys: [][]byte{append(good, "more"...)}},
		"an empty text":              {Audience: audience, PublicKeys: [][]byte{nil}},
		"a negative leeway":          {Audience: audience, HS256Secret: secret, Leeway: -1},
		"a long leeway":              {Audience: audience, HS256Secret: secret, Leeway: MaxLeeway + 1},
		"a key set without TLS":      {Audience: audience, JWKSURL: "http://keys.example.com/jwks"},
		"a key set from a file":      {Audience: audience, JWKSURL: "file:///etc/jwks"},
		"a key set without a host":   {Audience: audience, JWKSURL: "https:///jwks"},
		"a key set that is no URL":   {Audience: audience, JWKSURL: "https://%zz/"},
		"a key set of a like's name": {Audience: audience, JWKSURL: "http://localhost.example.com/"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, url := range []string{"https://keys.example.com/jwks", "http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost/"} {
		if _, err := New(Config{Audience: audience, JWKSURL: url}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
