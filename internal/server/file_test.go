// Tests of the configuration file, and of the reference that is printed from the code.

package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

// The page in docs is the one that the code prints.
func TestReference(t *testing.T) {
	const path = "../../docs/configuration.md"
	if *update {
		if err := os.WriteFile(path, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != Reference() {
		t.Error("docs/configuration.md is not what the code prints: run go test ./internal/server -run Reference -update")
	}
}

func TestFile(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "tidings.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TIDINGS_TEST_PASSWORD", "pass word")
	f, err := ReadFile(write(`
listen: 0.0.0.0:80
roles: [api]
channels:
  email:
    concurrency: 16
    timeout: 30s
    smtp: {addr: "127.0.0.1:25", mode: none, from: "A <a@example.test>", username: a, password: {env: TIDINGS_TEST_PASSWORD}}
  orders:
    webhook:
      url: https://orders.example.com/hooks
      secrets: [{file: ` + secret + `}]
      allowed: [10.0.0.0/8]
      key_window: 24h
`))
	if err != nil {
		t.Fatal(err)
	}
	if f.Values["listen"] != "0.0.0.0:80" || f.Channels["email"].Timeout != 30*time.Second || f.Channels["orders"].Webhook.KeyWindow != 24*time.Hour {
		t.Errorf("read as %+v", f)
	}
	if password, err := f.Channels["email"].SMTP.Password.read(); err != nil || password != "pass word" {
		t.Errorf("the password is read as %q, %v", password, err)
	}
	transports, closeAll, err := open(f.Channels)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	if len(transports) != 2 || transports["orders"].Contract().Key.Window != 24*time.Hour {
		t.Errorf("opened %v", transports)
	}
	if text := fmt.Sprintf("%v %+v %#v", f.Channels["email"].SMTP.Password, *f.Channels["email"].SMTP, Secret{Text: "pass word"}); strings.Contains(text, "pass word") {
		t.Errorf("a secret prints as %s", text)
	}

	for name, bad := range map[string]string{
		"an unknown setting":         "listem: x",
		"an unknown channel setting": "channels: {x: {smtp: {adr: y}}}",
		"a misspelt secret":          "channels: {x: {smtp: {addr: 'h:1', from: a@b.example, password: {evn: X}}}}",
		"no YAML":                    "{",
		"a secret of two sources":    "channels: {x: {webhook: {url: 'https://x.example', secrets: [{env: A, file: b}]}}}",
	} {
		f, err := ReadFile(write(bad))
		if err == nil {
			_, _, err = open(f.Channels)
		}
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "absent.yaml")); err == nil {
		t.Error("a file that is not there is accepted")
	}
}
