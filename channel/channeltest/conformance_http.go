// The part of the conformance suite that needs an HTTP peer.

package channeltest

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
)

// scene is a fault and what a send may say about it. Without codes the contract's word on the status decides.
type scene struct {
	fault Fault
	only  Protocol // "": every protocol
	codes []tidings.Outcome
}

func scenes(elsewhere string) []scene {
	unknown := []tidings.Outcome{tidings.IOError}
	list := []scene{
		{fault: Fault{Name: "close", Close: true}, codes: unknown},
		{fault: Fault{Name: "reset", Reset: true}, codes: unknown},
		{fault: Fault{Name: "hang", Hang: true}, codes: []tidings.Outcome{tidings.Timeout}},
		{fault: Fault{Name: "cut", Cut: true}, codes: []tidings.Outcome{tidings.Accepted}},
		{fault: Fault{Name: "garbage", Raw: "\x00\xffnothing sensible\r\n\r\n"}, only: HTTP1, codes: unknown},
		{fault: Fault{Name: "half a status line", Raw: "HTTP/1.1 20"}, only: HTTP1, codes: unknown},
		{fault: Fault{Name: "goaway", GoAway: true}, only: HTTP2, codes: []tidings.Outcome{tidings.IOError, tidings.NotSent}},
	}
	switched := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"x"}}
	list = append(list, scene{codes: unknown, only: HTTP1, fault: Fault{Name: "101", Status: 101, Header: switched}})
	for _, status := range []int{301, 302, 303, 307, 308} {
		list = append(list, scene{codes: unknown, fault: Fault{Name: fmt.Sprint(status), Status: status, Header: http.Header{"Location": {elsewhere}}}})
	}
	for _, status := range []int{400, 401, 404, 408, 409, 410, 422, 429, 500, 502, 503, 504, 599} {
		list = append(list, scene{fault: Fault{Name: fmt.Sprint(status), Status: status, Header: http.Header{"Retry-After": {"3"}}}})
	}
	for code := range h2Codes {
		list = append(list, scene{only: HTTP2, fault: Fault{Name: code, Stream: code}, codes: []tidings.Outcome{tidings.IOError, tidings.NotSent}})
	}
	return list
}

func conformHTTP(t *testing.T, f Fixture) {
	for _, protocol := range []Protocol{HTTP1, HTTPS1, HTTP2} {
		t.Run(string(protocol), func(t *testing.T) {
			peer := startHTTPPeer(t, protocol, f.Answer)
			b := newBench(t, f, f.HTTP(peer.URL(), peer.TLS()), peer.URL())
			b.declared()
			b.unstarted(peer.Begun)
			b.pure(newBench(t, f, f.HTTP(peer.URL(), peer.TLS()), peer.URL()))
			b.sameBytes(f, peer)
			b.asleep(peer)
			for _, sc := range scenes(peer.URL() + "/elsewhere") {
				if sc.only == "" || sc.only == protocol {
					t.Run(sc.fault.Name, func(t *testing.T) { playHTTP(t, f, protocol, sc) })
				}
			}
		})
	}
	t.Run("no connection", func(t *testing.T) { unreachable(t, f) })
}

func startHTTPPeer(t *testing.T, protocol Protocol, answer string) *HTTPPeer {
	t.Helper()
	peer, err := StartHTTPPeer(protocol, answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Close)
	return peer
}

// playHTTP plays a scene on a new connection and on one that has already served a request, for sends and for queries.
func playHTTP(t *testing.T, f Fixture, protocol Protocol, sc scene) {
	for _, kept := range []bool{false, true} {
		peer := startHTTPPeer(t, protocol, f.Answer)
		b := newBench(t, f, f.HTTP(peer.URL(), peer.TLS()), peer.URL())
		one := func(what string, call func(context.Context) channel.Outcome) channel.Outcome {
			t.Helper()
			if kept {
				b.expect(b.send(b.deadline(plenty), b.message), tidings.Accepted)
			}
			before := peer.Begun()
			ctx := b.deadline(plenty)
			if sc.fault.Hang {
				seen := len(peer.Requests())
				ctx = b.expires(func() bool { return len(peer.Requests()) > seen })
			}
			peer.Next(sc.fault)
			out := call(ctx)
			if n := peer.Begun() - before; n != 1 {
				t.Errorf("%s (kept connection: %v): %d requests on the wire", what, kept, n)
			}
			requests := peer.Requests()
			if last := len(requests) - 1; last < 0 || kept && requests[last].Conn != requests[last-1].Conn {
				t.Errorf("%s (kept connection: %v): the scene was not played", what, kept)
			}
			return out
		}
		out := one("send", func(ctx context.Context) channel.Outcome { return b.send(ctx, b.message) })
		b.expect(out, b.allowed(sc)...)
		if sc.fault.Cut && out.ProviderMsgID != "" {
			t.Error("a provider's id out of half an answer")
		}
		if (sc.fault.Status == http.StatusGone) != out.AddressGone {
			t.Errorf("AddressGone is %v at status %d", out.AddressGone, sc.fault.Status)
		}
		if sc.fault.Header.Get("Retry-After") != "" && out.RetryAfter != 3*time.Second {
			t.Errorf("RetryAfter is %v, the provider asked for 3 s", out.RetryAfter)
		}
		if q, ok := b.ch.(channel.Querier); ok {
			out := one("query", func(ctx context.Context) channel.Outcome {
				return q.Query(ctx, channel.Ref{Key: b.message.Key, Address: b.message.Address})
			})
			b.check(out)
			b.expect(out, tidings.QueryFailed, tidings.NotSent)
		}
	}
}

// allowed are the outcomes of a scene; for a status they follow from the contract.
func (b *bench) allowed(sc scene) []tidings.Outcome {
	safe := b.ch.Contract().Safe
	switch status := sc.fault.Status; {
	case len(sc.codes) > 0:
		return sc.codes
	case status >= 500:
		return []tidings.Outcome{tidings.HTTP5xx}
	case safe == nil || !safe(status):
		return []tidings.Outcome{tidings.IOError}
	case status == http.StatusTooManyRequests:
		return []tidings.Outcome{tidings.Throttled}
	default:
		return []tidings.Outcome{tidings.Rejected}
	}
}

// sameBytes checks that an unchanged message is an unchanged body, and that acceptance and the provider's id come back.
func (b *bench) sameBytes(f Fixture, peer *HTTPPeer) {
	b.t.Helper()
	start := len(peer.Requests())
	for range 2 {
		out := b.send(b.deadline(plenty), b.message)
		b.expect(out, tidings.Accepted, tidings.AcceptedReplay)
		if out.ProviderMsgID != f.ProviderMsgID {
			b.t.Errorf("the provider's id is %q, its answer says %q", out.ProviderMsgID, f.ProviderMsgID)
		}
	}
	got := peer.Requests()[start:]
	if len(got) != 2 {
		b.t.Fatalf("the peer saw %d requests for two attempts", len(got))
	}
	if !bytes.Equal(got[0].Body, got[1].Body) || got[0].Path != got[1].Path || got[0].Method != got[1].Method {
		b.t.Error("the same message was sent with other bytes")
	}
	if len(got[0].Body) == 0 {
		b.t.Error("the peer got no body: what was compared is nothing")
	}
}

// asleep plays a process that stops between having a connection and the first byte, for longer than it may: as a slow
// handshake, and as a pause of its own on a new and on a kept connection.
func (b *bench) asleep(peer *HTTPPeer) {
	b.t.Helper()
	paused := false
	for range 2 {
		late := time.Now().Add(50 * time.Millisecond)
		ctx := httptrace.WithClientTrace(b.deadline(plenty), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			for paused = true; time.Now().Before(late.Add(time.Millisecond)); {
				time.Sleep(time.Until(late.Add(time.Millisecond)))
			}
		}})
		before := peer.Begun()
		b.expect(b.send(channel.WithStartBy(ctx, late), b.message), tidings.NotSent)
		if n := peer.Begun() - before; n != 0 {
			b.t.Errorf("too late, but the peer saw %d requests", n)
		}
		if !paused {
			b.t.Error("the channel got no connection: the pause was not played")
		}
		b.recovers()
	}
}

// recovers checks that the channel works again; a shared connection that was given up may be in the way for a moment, as
// a NOT_SENT.
func (b *bench) recovers() {
	b.t.Helper()
	ctx := b.deadline(plenty)
	out := b.send(ctx, b.message)
	for out.Code == tidings.NotSent && ctx.Err() == nil {
		out = b.send(ctx, b.message)
	}
	b.expect(out, tidings.Accepted, tidings.AcceptedReplay)
}

// unreachable plays what happens before there is a connection.
func unreachable(t *testing.T, f Fixture) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	_ = listener.Close()
	untrusted := startHTTPPeer(t, HTTPS1, f.Answer)
	plain := startHTTPPeer(t, HTTP1, f.Answer)
	plainHost := strings.TrimPrefix(plain.URL(), "http://")
	for _, c := range []struct{ name, url string }{
		{"connection refused", "http://" + closed},
		{"no such name", "http://nowhere.invalid"},
		{"certificate not trusted", untrusted.URL()},
		{"no TLS", "https://" + plainHost},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, f, f.HTTP(c.url, &tls.Config{}), c.url)
			b.expect(b.send(b.deadline(plenty), b.message), tidings.NotSent)
		})
	}
	if n := len(untrusted.Requests()) + len(plain.Requests()); n != 0 {
		t.Errorf("%d requests arrived without a trusted connection", n)
	}
}
