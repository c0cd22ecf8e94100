// Tests of the one HTTP door.

package channel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func peer(t *testing.T, protocol channeltest.Protocol) *channeltest.HTTPPeer {
	t.Helper()
	p, err := channeltest.StartHTTPPeer(protocol, `{"id":"1"}`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func door(t *testing.T, o channel.DoorOptions) *channel.Door {
	d := channel.NewDoor(o)
	t.Cleanup(d.Close)
	return d
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var keyed = channel.Request{Method: http.MethodPost, Body: []byte(`{"hello":"world"}`), Header: http.Header{
	"Content-Type": {"application/json"}, "Idempotency-Key": {"k"}}}

// Everything at once: calls that fail in every way, cancelled at any moment, over kept and shared connections. However
// it goes, each call is at most one request, and what was counted as not written never arrived.
func TestManyCallsUnderFaults(t *testing.T) {
	for _, protocol := range []channeltest.Protocol{channeltest.HTTP1, channeltest.HTTPS1, channeltest.HTTP2} {
		t.Run(string(protocol), func(t *testing.T) {
			p := peer(t, protocol)
			d := door(t, channel.DoorOptions{TLS: p.TLS(), Idle: 4})
			random := rand.New(rand.NewPCG(1, 2))
			kinds := []channeltest.Fault{{}, {}, {}, {Close: true}, {Reset: true}, {Cut: true}, {Status: 503}, {Hang: true}}
			if protocol == channeltest.HTTP2 {
				kinds = append(kinds, channeltest.Fault{Stream: "REFUSED_STREAM"}, channeltest.Fault{Stream: "PROTOCOL_ERROR"}, channeltest.Fault{GoAway: true})
			}
			const workers, each = 8, 40
			for range workers * each {
				p.Next(kinds[random.IntN(len(kinds))])
			}
			var wg sync.WaitGroup
			var unwritten, answered atomic.Uint64
			for w := range workers {
				random := rand.New(rand.NewPCG(3, uint64(w)))
				wg.Go(func() {
					for range each {
						r := keyed
						r.URL = p.URL()
						if random.IntN(2) == 0 {
							r.Method, r.Body = http.MethodGet, nil
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(120))*time.Millisecond)
						if random.IntN(2) == 0 {
							ctx = channel.WithStartBy(ctx, time.Now().Add(time.Duration(random.IntN(20))*time.Millisecond))
						}
						resp := d.Do(ctx, r)
						cancel()
						if !resp.Written {
							unwritten.Add(1)
						}
						if resp.Status != 0 {
							answered.Add(1)
						}
					}
				})
			}
			wg.Wait()
			stats := d.Stats()
			if stats.Calls != workers*each || stats.Written+unwritten.Load() != stats.Calls {
				t.Errorf("%+v, and %d calls report that nothing was written", stats, unwritten.Load())
			}
			if n := uint64(p.Begun()); n > stats.Written || n == 0 {
				t.Errorf("%d requests arrived, %d were written", n, stats.Written)
			}
			if answered.Load() == 0 || answered.Load() == stats.Calls {
				t.Errorf("%d of %d calls were answered: the faults or the answers are missing", answered.Load(), stats.Calls)
			}
			t.Logf("%+v, %d arrived, %d answered, %d connections", stats, p.Begun(), answered.Load(), p.Conns())
		})
	}
}

func TestGuardJudgesAtDialTime(t *testing.T) {
	p := peer(t, channeltest.HTTP1)
	for _, target := range []string{p.URL(), strings.Replace(p.URL(), "127.0.0.1", "localhost", 1), strings.Replace(p.URL(), "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		strings.Replace(p.URL(), "127.0.0.1", "0.0.0.0", 1)} {
		r := keyed
		r.URL = target
		d := door(t, channel.DoorOptions{Guard: channel.PublicOnly()})
		resp := d.Do(within(t, 20*time.Second), r)
		var refused *channel.RefusedAddressError
		if resp.Written || !errors.As(resp.Err, &refused) {
			t.Errorf("%s: %v", target, resp.Err)
		}
		out := channel.Classify(channel.Contract{}, resp)
		if out.Code != tidings.NotSent || !strings.Contains(out.Detail, "not allowed") {
			t.Errorf("%s: %+v", target, out)
		}
	}
	if p.Conns() != 0 {
		t.Errorf("%d connections were made", p.Conns())
	}
	r := keyed
	r.URL = p.URL()
	d := door(t, channel.DoorOptions{Guard: channel.PublicOnly(netip.MustParsePrefix("127.0.0.0/8"))})
	if resp := d.Do(within(t, 20*time.Second), r); resp.Status != 200 {
		t.Errorf("an allowed address: %v", resp.Err)
	}
}

func TestPublicOnly(t *testing.T) {
	guard := channel.PublicOnly(netip.MustParsePrefix("10.1.0.0/16"))
	for addr, allowed := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "8.8.8.8": true, "10.1.2.3": true, "::ffff:10.1.2.3": true, "::ffff:8.8.8.8": true,
		"0.0.0.0": false, "0.1.2.3": false, "127.0.0.1": false, "127.9.9.9": false, "10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false,
		"172.32.0.1": true, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "100.127.255.255": false, "100.128.0.1": true,
		"192.0.0.1": false, "192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false,
		"239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "192.88.99.1": false,
		"::": false, "::1": false, "::ffff:127.0.0.1": false, "::127.0.0.1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd12::1": false,
		"ff02::1": false, "64:ff9b::7f00:1": false, "64:ff9b::808:808": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001::1": false,
		"2001:db8::1": false, "100::1": false, "fec0::1": false, "3fff::1": false,
	} {
		if err := guard(netip.MustParseAddr(addr)); (err == nil) != allowed {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if guard(netip.Addr{}) == nil {
		t.Error("the zero address is allowed")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	p := peer(t, channeltest.HTTP1)
	p.Next(channeltest.Fault{Body: strings.Repeat("x", channel.MaxAnswer+1)}, channeltest.Fault{Body: strings.Repeat("x", channel.MaxAnswer)})
	d := door(t, channel.DoorOptions{})
	r := keyed
	r.URL = p.URL()
	if resp := d.Do(within(t, 20*time.Second), r); len(resp.Body) != channel.MaxAnswer || resp.BodyErr == nil {
		t.Errorf("%d bytes, %v", len(resp.Body), resp.BodyErr)
	}
	if resp := d.Do(within(t, 20*time.Second), r); len(resp.Body) != channel.MaxAnswer || resp.BodyErr != nil {
		t.Errorf("%d bytes, %v", len(resp.Body), resp.BodyErr)
	}
	header := http.Header{"X": {strings.Repeat("x", 2*channel.MaxAnswer)}}
	p.Next(channeltest.Fault{Header: header})
	if resp := d.Do(within(t, 20*time.Second), r); resp.Status != 0 || !resp.Written {
		t.Errorf("endless headers: status %d", resp.Status)
	}
}

func TestRequestsThatCannotBeFormed(t *testing.T) {
	d := door(t, channel.DoorOptions{})
	for _, target := range []string{"", "://", "ftp://example.org", "http://", "http://a b/", "/relative"} {
		r := keyed
		r.URL = target
		if out := channel.Classify(channel.Contract{}, d.Do(within(t, 20*time.Second), r)); out.Code != tidings.NotSent || out.Detail == "" {
			t.Errorf("%q: %+v", target, out)
		}
	}
	r := keyed
	r.URL, r.Method = "http://127.0.0.1:1", "BAD METHOD"
	if out := channel.Classify(channel.Contract{}, d.Do(within(t, 20*time.Second), r)); out.Code != tidings.NotSent {
		t.Errorf("a bad method: %+v", out)
	}
}

func TestProxy(t *testing.T) {
	p := peer(t, channeltest.HTTP1)
	proxy, err := url.Parse(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	d := door(t, channel.DoorOptions{Proxy: proxy})
	r := keyed
	r.URL = "http://target.invalid/x"
	if resp := d.Do(within(t, 20*time.Second), r); resp.Status != 200 {
		t.Errorf("through the proxy: %v", resp.Err)
	}
	p.Next(channeltest.Fault{Status: 502})
	r.URL = "https://target.invalid/x"
	if resp := d.Do(within(t, 20*time.Second), r); resp.Written || resp.Err == nil {
		t.Errorf("a proxy that does not connect: nothing of the request has left, but %+v", resp)
	}
	if got := p.Requests(); len(got) != 2 || got[1].Method != http.MethodConnect {
		t.Errorf("the proxy saw %+v", got)
	}
}

func TestHash(t *testing.T) {
	base := channel.Request{Method: "POST", URL: "http://a/b", Body: []byte("x"), Header: http.Header{"Idempotency-Key": {"k"}, "X-Time": {"1"}}}
	hash := func(change func(*channel.Request)) []byte {
		r := base
		r.Header = base.Header.Clone()
		change(&r)
		return r.Hash("idempotency-key")
	}
	same := hash(func(*channel.Request) {})
	for name, c := range map[string]struct {
		change func(*channel.Request)
		equal  bool
	}{
		"nothing":      {func(*channel.Request) {}, true},
		"other header": {func(r *channel.Request) { r.Header.Set("X-Time", "2") }, true},
		"key":          {func(r *channel.Request) { r.Header.Set("Idempotency-Key", "l") }, false},
		"body":         {func(r *channel.Request) { r.Body = []byte("y") }, false},
		"url":          {func(r *channel.Request) { r.URL = "http://a/c" }, false},
		"method":       {func(r *channel.Request) { r.Method = "PUT" }, false},
		"moved byte":   {func(r *channel.Request) { r.URL, r.Body = "http://a/bx", nil }, false},
	} {
		if got := bytes.Equal(hash(c.change), same); got != c.equal {
			t.Errorf("%s: equal is %v", name, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	const date = "Mon, 30 Nov 2026 12:00:00 GMT"
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", date, 0}, {"7", date, 7 * time.Second}, {"0", date, 0}, {"-5", date, 0}, {"soon", date, 0}, {"1.5", date, 0},
		{"Mon, 30 Nov 2026 12:02:00 GMT", date, 2 * time.Minute}, {"Mon, 30 Nov 2026 11:00:00 GMT", date, 0},
		{"Mon, 30 Nov 2026 12:02:00 GMT", "", 0}, {"99999999999999", date, 366 * 24 * time.Hour},
		{"Fri, 31 Dec 9999 23:59:59 GMT", date, 366 * 24 * time.Hour}, {"99999999999999999999999", date, 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.value)
		h.Set("Date", c.date)
		if got := channel.RetryAfter(h); got != c.want {
			t.Errorf("%q with Date %q: %v, want %v", c.value, c.date, got, c.want)
		}
	}
	if got := channel.RetryAfter(nil); got != 0 {
		t.Errorf("without headers: %v", got)
	}
}

func TestProviderID(t *testing.T) {
	for id, want := range map[string]string{"": "", "abc-1": "abc-1", "ä 1": "ä 1", "a\x00b": "", "a\nb": "", "\xff": "",
		strings.Repeat("x", 256): strings.Repeat("x", 256), strings.Repeat("x", 257): ""} {
		if got := channel.ProviderID(id); got != want {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestDescribeHoldsNoAddress(t *testing.T) {
	d := door(t, channel.DoorOptions{})
	for _, target := range []string{"http://somebody.invalid/x", "http://127.0.0.1:1/x", "https://127.0.0.1:1/x"} {
		r := keyed
		r.URL = target
		got := channel.Describe(d.Do(within(t, 20*time.Second), r).Err)
		if got == "" || strings.Contains(got, "somebody") || strings.Contains(got, "127.0") {
			t.Errorf("%s: %q", target, got)
		}
	}
	if got := channel.Describe(fmt.Errorf("secret %w", errors.New("secret"))); strings.Contains(got, "secret") {
		t.Errorf("an unknown error: %q", got)
	}
}
