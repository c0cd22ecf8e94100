// The conformance suite that every channel passes: what it asks, for any transport.

package channeltest

import (
	"bytes"
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
)

// Fixture says how to make the channel under test. One of HTTP and SMTP is set; both make a new channel that talks to
// the peer and trusts what tls trusts (nil: no TLS). A channel with a Close method is closed at the end.
type Fixture struct {
	HTTP func(url string, tls *tls.Config) channel.Channel
	SMTP func(addr string, tls *tls.Config) channel.Channel // with STARTTLS when tls is set

	// Message is accepted by the channel when Key is replaced by other keys. When its Address must be the peer's URL,
	// AddressIsURL is set instead.
	Message      channel.Message
	AddressIsURL bool

	Answer        string // HTTP: the body with which the provider accepts
	ProviderMsgID string // HTTP: the id that Answer carries
}

// Conformance checks what every channel owes to the machinery around it: at most one request on the wire for each
// attempt, in every scene; NOT_SENT exactly where nothing left; the same bytes for the same message; an unknown outcome
// wherever nobody can know; and details that hold no address and no content.
func Conformance(t *testing.T, f Fixture) {
	t.Helper()
	if (f.HTTP == nil) == (f.SMTP == nil) {
		t.Fatal("a fixture has either HTTP or SMTP")
	}
	if f.HTTP != nil {
		conformHTTP(t, f)
	} else {
		conformSMTP(t, f)
	}
}

// bench holds what the scenes of one test share: a channel and the secrets that no detail may hold.
type bench struct {
	t       *testing.T
	ch      channel.Channel
	message channel.Message
	secrets []string
}

func newBench(t *testing.T, f Fixture, ch channel.Channel, peer string) *bench {
	t.Helper()
	b := &bench{t: t, ch: ch, message: f.Message}
	if c, ok := ch.(interface{ Close() }); ok {
		t.Cleanup(c.Close)
	}
	if f.AddressIsURL {
		b.message.Address = peer
	}
	b.secrets = []string{b.message.Address, b.message.Title, b.message.Body, b.message.User, peer}
	if len(b.message.Data) > 0 {
		b.secrets = append(b.secrets, string(b.message.Data))
	}
	if _, host, ok := strings.Cut(peer, "://"); ok {
		b.secrets = append(b.secrets, host)
	}
	return b
}

// send makes one attempt and checks what holds for every outcome.
func (b *bench) send(ctx context.Context, m channel.Message) channel.Outcome {
	b.t.Helper()
	out := b.ch.Send(ctx, m)
	b.check(out)
	if out.Code != tidings.Rejected && len(out.RequestHash) != 32 {
		b.t.Errorf("the request hash has %d bytes, not 32", len(out.RequestHash))
	}
	return out
}

func (b *bench) check(out channel.Outcome) {
	b.t.Helper()
	for _, s := range b.secrets {
		if s != "" && strings.Contains(out.Detail, s) {
			b.t.Errorf("the detail %q holds an address or content", out.Detail)
		}
	}
	if out.Code != tidings.Accepted && out.Code != tidings.AcceptedReplay && out.Code != tidings.QueryFound &&
		out.Code != tidings.QueryNotFound && out.Detail == "" {
		b.t.Errorf("the outcome %s has no detail", out.Code)
	}
	if out.KeyLost && out.Code != tidings.NotSent {
		b.t.Errorf("KeyLost goes with NOT_SENT, not with %s", out.Code)
	}
}

func (b *bench) expect(out channel.Outcome, want ...tidings.Outcome) {
	b.t.Helper()
	for _, w := range want {
		if out.Code == w && w != "" {
			return
		}
	}
	b.t.Errorf("the outcome is %s (%s), want %v", out.Code, out.Detail, want)
}

// deadline is a call's context.
func (b *bench) deadline(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	b.t.Cleanup(cancel)
	return ctx
}

// expiring is a call's context that runs out of time at a moment of our choice.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.over }

func (e *expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// expires is a context whose time is over as soon as the peer has seen what it shall see: no clock decides whether a
// scene is played.
func (b *bench) expires(seen func() bool) context.Context {
	e := &expiring{b.deadline(plenty), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(e.over)
		for !seen() && e.Context.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	b.t.Cleanup(func() { <-done })
	return e
}

// plenty is long enough for whatever answers at once.
const plenty = 20 * time.Second

// declared checks what a channel says of itself.
func (b *bench) declared() {
	c := b.ch.Contract()
	if c.Source == "" {
		b.t.Error("the contract has no source")
	}
	if b.ch.Renderer() == "" {
		b.t.Error("the channel has no renderer")
	}
	if c.Key != nil && (c.Key.Window <= 0 || c.Key.Carrier == "") {
		b.t.Error("the contract's key has no window or no carrier")
	}
	if _, asks := b.ch.(channel.Querier); asks != (c.Query != nil) {
		b.t.Error("a channel implements Querier exactly when its contract has a Query")
	}
	for status := 200; status < 400 && c.Safe != nil; status++ {
		if c.Safe(status) {
			b.t.Errorf("status %d is declared safe: only 400 to 599 can prove non-acceptance", status)
		}
	}
}

// unstarted checks that an attempt which must not start leaves no trace; begun counts what the peer saw.
func (b *bench) unstarted(begun func() int) {
	b.t.Helper()
	none := func(what string, ctx context.Context, m channel.Message) channel.Outcome {
		b.t.Helper()
		before := begun()
		out := b.send(ctx, m)
		b.expect(out, tidings.NotSent)
		if n := begun() - before; n != 0 {
			b.t.Errorf("%s: the peer saw %d requests", what, n)
		}
		return out
	}
	none("too late", channel.WithStartBy(b.deadline(plenty), time.Now().Add(-time.Millisecond)), b.message)
	gone, cancel := context.WithCancel(b.t.Context())
	cancel()
	none("cancelled", gone, b.message)
	if b.ch.Contract().Key != nil {
		m := b.message
		m.Keyed, m.FirstHash = true, bytes.Repeat([]byte{1}, 32)
		if out := none("other bytes under the same key", b.deadline(plenty), m); !out.KeyLost {
			b.t.Error("other bytes under the same key: KeyLost is not set")
		}
	}
}

// pure checks that the hash depends on the message alone: other is a second channel with the same configuration.
func (b *bench) pure(other *bench) {
	b.t.Helper()
	first := b.send(b.deadline(plenty), b.message)
	again := b.message
	again.Attempt = 2
	if out := other.send(other.deadline(plenty), again); !bytes.Equal(out.RequestHash, first.RequestHash) {
		b.t.Error("the same message has another request hash in another attempt and another channel")
	}
	changed := b.message
	changed.Body += "."
	if out := b.send(b.deadline(plenty), changed); bytes.Equal(out.RequestHash, first.RequestHash) {
		b.t.Error("another body has the same request hash")
	}
}
