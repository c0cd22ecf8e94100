// Tests of messages that are written on their sender's own goroutine.

package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/wire"
)

// lone offers a message to atOnce and returns whether it was taken, and what became of it: of one that was not taken nothing does.
func (d *desk) lone(m tidings.Message) (taken bool, outcome <-chan sent) {
	out := make(chan sent, 1)
	taken = d.atOnce(context.Background(), &outgoing{msg: m, done: func(a tidings.Answer, err error) { out <- sent{a, err} }})
	return taken, out
}

// A message that is alone is stored, told and answered when atOnce returns, and leaves nothing behind.
func TestCommitterWritesALoneMessageAtOnce(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{})
	d.converse("c", 1, "ana")
	d.start()
	for _, want := range []string{"2", "2 dup"} {
		taken, outcome := d.lone(msg("c1", "ana", "k1", "x"))
		if !taken || len(outcome) != 1 {
			t.Fatalf("taken: %v, %d answers", taken, len(outcome))
		}
		d.want(want, outcome)
	}
	d.wantTold("c1", 2)
	if d.count != 0 || d.bytes != 0 || len(d.backlogs) != 0 {
		t.Errorf("%d messages, %d bytes and %d conversations are left", d.count, d.bytes, len(d.backlogs))
	}
}

// While a lone message is on its way, what comes is queued: none overtakes it, and no other one is taken at once.
func TestCommitterQueuesBehindALoneMessage(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{})
	d.converse("c", 2, "ana")
	open := d.blocked()
	stop := d.start()
	first := make(chan (<-chan sent), 1)
	go func() {
		_, outcome := d.lone(msg("c1", "ana", "k1", "one"))
		first <- outcome
	}()
	d.await("the lone message was not taken", func() bool {
		d.committer.mu.Lock()
		defer d.committer.mu.Unlock()
		return d.count == 1
	})
	queued := d.post(msg("c1", "ana", "k2", "two"), msg("c2", "ana", "k1", "elsewhere"), msg("c1", "ana", "k1", "one"))
	if taken, outcome := d.lone(msg("c2", "ana", "k2", "x")); taken || len(outcome) != 0 {
		t.Error("a second message was taken at once")
	}
	open()
	d.want("2", <-first)
	d.want("3, 2, 2 dup", queued...)
	d.wantLog("c1", "k1=one", "k2=two")
	d.wantTold("c1", 2, 3)
	stop()
	if taken, outcome := d.lone(msg("c1", "ana", "k3", "x")); taken || len(outcome) != 0 {
		t.Error("a message was taken by a committer that has stopped")
	}
}

// Stopping waits for a lone message that is on its way, as for any other.
func TestCommitterStopsAfterALoneMessage(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{})
	d.converse("c", 1, "ana")
	inside, gate := make(chan struct{}), make(chan struct{})
	d.send = func(send sendFunc) sendFunc {
		return func(ctx context.Context, batch []tidings.Message, wait time.Duration) ([]tidings.Answer, error) {
			close(inside)
			<-gate
			return send(ctx, batch, wait)
		}
	}(d.send)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx)
	}()
	answered := make(chan (<-chan sent), 1)
	go func() {
		_, outcome := d.lone(msg("c1", "ana", "k1", "one"))
		answered <- outcome
	}()
	<-inside
	cancel()
	select {
	case <-ended:
		t.Error("the committer ended before the message was answered")
	case <-time.After(50 * time.Millisecond): // a fault shows at once; none needs no time
	}
	close(gate)
	<-ended
	d.want("2", <-answered)
}

// A lone message of a conversation that somebody holds goes to those who wait for it.
func TestCommitterSetsALoneMessageAside(t *testing.T) {
	d := newDesk(t, pgtest.New(t), committerOptions{LockTimeout: patience})
	d.converse("c", 2, "ana")
	d.start()
	free := d.hold("c1")
	taken, held := d.lone(msg("c1", "ana", "k1", "x"))
	if !taken || len(held) != 0 {
		t.Fatalf("taken: %v, %d answers", taken, len(held))
	}
	d.want("2", d.post(msg("c2", "ana", "k1", "x"))...)
	free()
	d.want("2", held)
	d.wantTold("c1", 2)
}

// Whose reader is busy with a message, because the database is slow, is not taken for dead: it could not hear the answers to pings. What
// comes meanwhile is served after it, in order.
func TestSessionIsDeafWhileItsLoneMessageIsWritten(t *testing.T) {
	h := newHouse(t, quick)
	h.conversation("c", "ana")
	ana := h.login("ana", "a1")
	tx, err := h.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE tidings.event IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ana.text(`{"t":"send","rid":"1","conv":"c","cmid":"m1","body":"one"}`)
	eventually(t, "the message is on its way", func() bool {
		h.committer.mu.Lock()
		defer h.committer.mu.Unlock()
		return h.committer.count == 1
	})
	ana.text(`{"t":"send","rid":"2","conv":"c","cmid":"m2","body":"two"}`)
	for pings := 0; pings < 3; { // in more than PingEvery and PongWait together
		if f := ana.frameOf(t); f.T == wire.TypePing {
			ana.text(`{"t":"pong"}`)
			pings++
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, rid := range []string{"1", "2"} {
		if f := ana.want(wire.TypeSent); f.Rid != rid || f.Dup {
			t.Errorf("answered was %s, want rid %s", f.raw, rid)
		}
	}
}

// frameOf reads one frame of the protocol, whichever it is.
func (p *peer) frameOf(t *testing.T) wire.Frame {
	t.Helper()
	opcode, payload, err := p.frame()
	if err != nil || opcode != 1 {
		t.Fatalf("read from the gateway: opcode %d %q, %v", opcode, payload, err)
	}
	f, err := wire.DecodeFrame(payload)
	if err != nil {
		t.Fatalf("%v: %s", err, payload)
	}
	return f
}
