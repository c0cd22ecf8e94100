// Tests of the settings.

package server

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

func TestTokenSettings(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) (cfg Config) {
		t.Helper()
		parser, err := kong.New(&cfg)
		if err == nil {
			_, err = parser.Parse(append(args, "--database-url", "x", "--roles", "api"))
		}
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}

	if cfg := read(); cfg.check() != nil {
		t.Errorf("without tokens: %v", cfg.check())
	} else if v, err := cfg.verifier(nil); v != nil || err != nil {
		t.Errorf("without tokens there is a verifier, %v", err)
	}
	t.Setenv("TIDINGS_TOKEN_HS256_SECRET", secret)
	cfg := read("--token-public-keys", file, "--token-jwks-url", "http://127.0.0.1:1/jwks")
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg); strings.Contains(text, secret) {
		t.Error("the secret prints")
	}
	v, err := cfg.verifier(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := token.IssueHS256([]byte(secret), "tidings", token.Claims{User: "u-ana", Issued: time.Now(), Expires: time.Now().Add(-20 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := v.Verify(t.Context(), text); err != nil || c.User != "u-ana" {
		t.Errorf("a token within the default leeway: %+v, %v", c, err)
	}

	for name, args := range map[string][]string{
		"a short secret":          {"--token-hs256-secret", "hush-hush"},
		"a key that is not there": {"--token-public-keys", file + "x"},
		"a key set without TLS":   {"--token-jwks-url", "http://keys.example.com/"},
		"no audience":             {"--token-audience", ""},
		"a long leeway":           {"--token-leeway", "1h"},
	} {
		cfg := read(args...)
		if err := cfg.check(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the secret stands in the error", name)
		}
	}
}

func TestLifetimeSettings(t *testing.T) {
	for _, c := range []struct {
		name                  string
		retention, tombstones time.Duration
		conns                 int32
		resend                time.Duration // negative: it is refused
	}{
		{"the defaults", 0, 720 * time.Hour, 40, 696 * time.Hour},
		{"for ever", 0, 0, 2, 0},
		{"the least", time.Millisecond, 48 * time.Hour, 40, 24 * time.Hour},
		{"tombstones that are too young", 0, 48*time.Hour - 1, 40, -1},
		{"negative tombstones", 0, -time.Hour, 40, -1},
		{"a negative retention", -1, 0, 40, -1},
		{"a retention below what is stored", time.Microsecond, 0, 40, -1},
		{"one connection", 0, 0, 1, -1},
		{"a retention that no conversation can have", store.LongestSetting + 1, 0, 40, -1},
	} {
		cfg := Config{DatabaseURL: "x", Roles: []string{RoleAPI}, DatabaseConns: c.conns, Drain: 1, HousekeepingEach: 1, Retention: c.retention, TombstonesFor: c.tombstones,
			GatewayPing: 1, GatewayLease: 1, GatewayDrain: 1, GatewayConnections: 1, GatewayPerUser: 1, GatewayRate: 1, GatewayBatch: 1}
		switch err := cfg.check(); {
		case c.resend < 0:
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil || cfg.resendFor() != c.resend:
			t.Errorf("%s: resend for %v, %v", c.name, cfg.resendFor(), err)
		}
	}
}

// A gateway with another role beside it has two pools: neither gets more than its half, and each gets two, a worker's three.
func TestConnectionsOfTwoPools(t *testing.T) {
	for _, c := range []struct {
		roles []string
		least int32
	}{
		{[]string{RoleAPI}, 2},
		{[]string{RoleGateway}, 2},
		{[]string{RoleGateway, RoleGateway}, 2},
		{[]string{RoleGateway, RoleAPI}, 4},
		{[]string{RoleAPI, RoleGateway}, 4},
		{[]string{RoleWorker}, 3},
		{[]string{RoleWorker, RoleAPI}, 3},
		{[]string{RoleGateway, RoleWorker}, 6},
	} {
		for conns := range int32(8) {
			cfg := Config{DatabaseURL: "x", Roles: c.roles, DatabaseConns: conns, Drain: 1, HousekeepingEach: 1, TokenHS256Secret: Secret{Text: strings.Repeat("s", 32)},
				TokenAudience: "tidings", GatewayPing: 1, GatewayLease: 1, GatewayDrain: 1, GatewayConnections: 1, GatewayPerUser: 1, GatewayRate: 1, GatewayBatch: 1,
				Channels: map[string]Channel{"x": {}}, ChatNotifyTTL: time.Hour, ChatPreviewLength: 1}
			if err := cfg.check(); (err == nil) != (conns >= c.least) {
				t.Errorf("%v with %d connections: %v", c.roles, conns, err)
			}
		}
	}
}
