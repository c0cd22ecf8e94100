// Tests of the webhook channel: conformance, signature, targets.

package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func secret(t *testing.T, fill byte) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret("whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32))))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func message() channel.Message {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)
	return channel.Message{Key: "00112233445566778899aabbccddeeff", User: "u-1", EventKey: "order-1001", Address: "device-7", Title: "Shipped <b>",
		Body: "Order 1001 has left.", Data: json.RawMessage(`{"z": 1, "a": "ü"}`), Category: "orders", CreatedAt: at, ExpiresAt: at.Add(time.Hour), Attempt: 1}
}

func newChannel(t *testing.T, c webhook.Config) *webhook.Channel {
	t.Helper()
	if c.Secrets == nil {
		c.Secrets = []webhook.Secret{secret(t, 'a')}
	}
	ch, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ch.Close)
	return ch
}

func startPeer(t *testing.T, protocol channeltest.Protocol) *channeltest.HTTPPeer {
	t.Helper()
	p, err := channeltest.StartHTTPPeer(protocol, `{"id":"receiver-1"}`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestConformance(t *testing.T) {
	fixture := channeltest.Fixture{Message: message(), Answer: `{"id":"receiver-1"}`, ProviderMsgID: "receiver-1"}
	t.Run("configured URL", func(t *testing.T) {
		f := fixture
		f.HTTP = func(url string, c *tls.Config) channel.Channel {
			return newChannel(t, webhook.Config{URL: url, TLS: c, AllowPrivate: true, PlainHTTP: true, KeyWindow: time.Hour})
		}
		channeltest.Conformance(t, f)
	})
	t.Run("address is URL", func(t *testing.T) {
		f := fixture
		f.AddressIsURL = true
		f.HTTP = func(_ string, c *tls.Config) channel.Channel {
			return newChannel(t, webhook.Config{TLS: c, Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PlainHTTP: true})
		}
		channeltest.Conformance(t, f)
	})
}

func TestWhatArrives(t *testing.T) {
	p := startPeer(t, channeltest.HTTPS1)
	old, current := secret(t, 'a'), secret(t, 'b')
	ch := newChannel(t, webhook.Config{URL: p.URL(), TLS: p.TLS(), AllowPrivate: true, Secrets: []webhook.Secret{current, old},
		Header: http.Header{"Authorization": {"Bearer x"}}})
	m := message()
	if out := ch.Send(within(t, 20*time.Second), m); out.Code != tidings.Accepted || out.ProviderMsgID != "receiver-1" {
		t.Fatalf("%+v", out)
	}
	got := p.Requests()[0]
	want := `{"type":"notification","id":"00112233445566778899aabbccddeeff","user":"u-1","address":"device-7","event_key":"order-1001",` +
		`"title":"Shipped \u003cb\u003e","body":"Order 1001 has left.","data":{"z":1,"a":"ü"},"category":"orders",` +
		`"created_at":"2026-11-30T12:00:00.123456Z","expires_at":"2026-11-30T13:00:00.123456Z"}`
	if diff := cmp.Diff(want, string(got.Body)); diff != "" {
		t.Errorf("the body (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"Webhook-Id": m.Key, "Content-Type": "application/json", "Authorization": "Bearer x"} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	for name, s := range map[string]webhook.Secret{"old": old, "current": current} {
		if err := webhook.Verify(got.Header, []webhook.Secret{s}, time.Now(), got.Body); err != nil {
			t.Errorf("the %s secret: %v", name, err)
		}
	}
	if err := webhook.Verify(got.Header, []webhook.Secret{secret(t, 'c')}, time.Now(), got.Body); err == nil {
		t.Error("a secret that did not sign verifies")
	}
}

func TestPrivateTargetsAreRefused(t *testing.T) {
	p := startPeer(t, channeltest.HTTPS1)
	ch := newChannel(t, webhook.Config{URL: p.URL(), TLS: p.TLS()})
	if out := ch.Send(within(t, 20*time.Second), message()); out.Code != tidings.NotSent || !strings.Contains(out.Detail, "loopback") {
		t.Errorf("%+v", out)
	}
	if p.Conns() != 0 {
		t.Error("a connection was made")
	}
	ch = newChannel(t, webhook.Config{})
	for _, address := range []string{"", "device-7", "http://example.org/", "https://user:pass@example.org/", "https://example.org/#x", "https:///x", "file:///etc/passwd", "https://[::1"} {
		m := message()
		m.Address = address
		if out := ch.Send(within(t, 20*time.Second), m); out.Code != tidings.Rejected {
			t.Errorf("%q: %+v", address, out)
		}
	}
}

func TestDeclaredContract(t *testing.T) {
	c := newChannel(t, webhook.Config{URL: "https://example.org"}).Contract()
	if c.Key != nil || c.Safe(429) || c.Safe(500) || c.Safe(503) || c.Safe(409) || c.Safe(408) || !c.Safe(400) || !c.Safe(410) {
		t.Error("the default is more than HTTP promises")
	}
	c = newChannel(t, webhook.Config{URL: "https://example.org", KeyWindow: time.Hour, SafeStatuses: []int{429, 503}}).Contract()
	if c.Key == nil || c.Key.Window != time.Hour || !c.Safe(429) || !c.Safe(503) || c.Safe(400) {
		t.Error("the declaration does not count")
	}
	for name, bad := range map[string]webhook.Config{
		"no secret":      {URL: "https://example.org", Secrets: []webhook.Secret{}},
		"empty secret":   {URL: "https://example.org", Secrets: []webhook.Secret{{}}},
		"plain http":     {URL: "http://example.org"},
		"a safe success": {URL: "https://example.org", SafeStatuses: []int{200}},
		"header name":    {URL: "https://example.org", Header: http.Header{"A b": {"x"}}},
		"header value":   {URL: "https://example.org", Header: http.Header{"A": {"x\r\nB: c"}}},
		"a window":       {URL: "https://example.org", KeyWindow: -1},
	} {
		if bad.Secrets == nil {
			bad.Secrets = []webhook.Secret{secret(t, 'a')}
		}
		if _, err := webhook.New(bad); tidings.ErrorCode(err) != tidings.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The example of the specification's libraries: secret, id, timestamp, body and signature are published test vectors.
func TestPublishedVector(t *testing.T) {
	s, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	webhook.Sign(header, []webhook.Secret{s}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got, want := header.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestVerify(t *testing.T) {
	s, now, body := secret(t, 'a'), time.Now(), []byte("body")
	for _, c := range []struct {
		name   string
		change func(http.Header)
		ok     bool
	}{
		{"nothing", func(http.Header) {}, true},
		{"another signature first", func(h http.Header) {
			h.Set("webhook-signature", "v1,AAAA v1a,BBBB garbage v1,!!! "+h.Get("webhook-signature"))
		}, true},
		{"other id", func(h http.Header) { h.Set("webhook-id", "y") }, false},
		{"no id", func(h http.Header) { h.Del("webhook-id") }, false},
		{"no signature", func(h http.Header) { h.Del("webhook-signature") }, false},
		{"no timestamp", func(h http.Header) { h.Del("webhook-timestamp") }, false},
		{"timestamp changed", func(h http.Header) { h.Set("webhook-timestamp", strconv.FormatInt(now.Unix()+1, 10)) }, false},
		{"timestamp is no number", func(h http.Header) { h.Set("webhook-timestamp", "x") }, false},
		{"unknown version", func(h http.Header) {
			h.Set("webhook-signature", strings.Replace(h.Get("webhook-signature"), "v1,", "v2,", 1))
		}, false},
		{"old", func(h http.Header) {
			webhook.Sign(h, []webhook.Secret{s}, "x", now.Add(-webhook.Tolerance-2*time.Second), body)
		}, false},
		{"from the future", func(h http.Header) {
			webhook.Sign(h, []webhook.Secret{s}, "x", now.Add(webhook.Tolerance+2*time.Second), body)
		}, false},
		{"nearly old", func(h http.Header) {
			webhook.Sign(h, []webhook.Secret{s}, "x", now.Add(-webhook.Tolerance+2*time.Second), body)
		}, true},
	} {
		h := http.Header{}
		webhook.Sign(h, []webhook.Secret{s}, "x", now, body)
		c.change(h)
		err := webhook.Verify(h, []webhook.Secret{secret(t, 'z'), s}, now, body)
		if (err == nil) != c.ok || err != nil && tidings.ErrorCode(err) != tidings.Unauthenticated {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	h := http.Header{}
	webhook.Sign(h, []webhook.Secret{{}}, "x", now, body)
	if webhook.Verify(h, []webhook.Secret{{}}, now, body) == nil {
		t.Error("an empty secret verifies")
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	s := secret(t, 'q')
	text := fmt.Sprintf("%v %+v %#v %s", s, []webhook.Secret{s}, s, webhook.Config{Secrets: []webhook.Secret{s}}.Secrets)
	if strings.Contains(text, "qqq") || strings.Contains(text, "cXFx") || strings.Contains(text, "113") {
		t.Errorf("a secret prints as %s", text)
	}
	for _, bad := range []string{"", "whsec_", "whsec_!!!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_QUJD"} {
		if _, err := webhook.ParseSecret(bad); tidings.ErrorCode(err) != tidings.InvalidArgument || bad != "" && strings.Contains(err.Error(), bad[6:]) && len(bad) > 6 {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestReceipts(t *testing.T) {
	s := secret(t, 'a')
	ch := newChannel(t, webhook.Config{URL: "https://example.org", Secrets: []webhook.Secret{s}})
	signed := func(by webhook.Secret, body string) ([]channel.Receipt, error) {
		h := http.Header{}
		webhook.Sign(h, []webhook.Secret{by}, "r-1", time.Now(), []byte(body))
		return ch.ParseReceipt(h, []byte(body))
	}
	got, err := signed(s, `{"provider_msg_id":"p1","reference":"r1","status":"delivered","at":"2026-11-30T12:00:00Z"}`)
	want := []channel.Receipt{{ProviderMsgID: "p1", Reference: "r1", Status: "delivered", At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := signed(secret(t, 'b'), `{"reference":"r1","status":"delivered"}`); tidings.ErrorCode(err) != tidings.Unauthenticated {
		t.Errorf("a stranger's receipt: %v", err)
	}
	body, err := json.Marshal(map[string]any{"type": "notification", "id": "r1", "user": "u", "body": "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", `{"status":"x"}`, `{"reference":"r"}`, string(body)} {
		if _, err := signed(s, bad); tidings.ErrorCode(err) != tidings.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
