// The scenes of the demo in which messages are recalled and purged.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

var lifeScenes = []chatScene{
	{"A message is recalled. One device is connected, another one was away when it happened.", recallForAll},
	{"The answer to a message is lost, and when its device comes back the message is purged already.", resendPurged},
	{"The database is lost. What a backup has is restored, while the devices wait.", restoreBackup},
}

// lifePeople are in the conversations of these scenes.
var lifePeople = []string{"u-dora", "u-emil"}

// cable is what a device is connected with. It can be pulled out.
type cable struct {
	mu    sync.Mutex
	out   bool
	conns []net.Conn
}

func (k *cable) use(cfg *client.Config) {
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.out {
			return nil, errors.New("the device is away")
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			k.conns = append(k.conns, conn)
		}
		return conn, err
	}
}

func (k *cable) pull() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out = true
	for _, conn := range k.conns {
		_ = conn.Close() // the client notices
	}
	k.conns = nil
}

func (k *cable) plug() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out = false
}

// hears waits until a device was told something.
func (d *device) hears(ctx context.Context, what string, is func(client.Update) bool) error {
	return d.until(ctx, what, func() bool { return slices.ContainsFunc(d.told, is) })
}

func arrived(seq int64) func(client.Update) bool {
	return func(u client.Update) bool { a, ok := u.(client.Arrived); return ok && a.Event.Seq == seq }
}

func recalled(seq int64) func(client.Update) bool {
	return func(u client.Update) bool {
		r, ok := u.(client.Recalled)
		return ok && r.Event.Seq == seq && r.Event.Body == nil
	}
}

// stored sends a message and waits until it is stored.
func stored(ctx context.Context, d *device, conv, cmid, body string) (client.Sent, error) {
	pending, err := d.Send(client.Message{Conv: conv, Cmid: cmid, Body: body})
	if err != nil {
		return client.Sent{}, fmt.Errorf("send: %w", err)
	}
	return pending.Wait(ctx)
}

// text is the body in a device's copy, empty when there is none.
func (d *device) text(conv string, seq int64) string {
	events, _ := d.Events(conv, seq, 1)
	if len(events) == 0 || events[0].Seq != seq || events[0].Body == nil {
		return ""
	}
	return *events[0].Body
}

// value asks the demo's database.
func value[T any](ctx context.Context, st *chatStage, sql string, args ...any) (v T, err error) {
	conn, err := pgx.Connect(ctx, st.box.DatabaseURL())
	if err != nil {
		return v, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		return v, fmt.Errorf("ask the database: %w", err)
	}
	return v, nil
}

// awaits waits until a question to the database is answered with yes.
func (st *chatStage) awaits(ctx context.Context, what, sql string, args ...any) error {
	for {
		yes, err := value[bool](ctx, st, sql, args...)
		if err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: it did not come in time", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func recallForAll(ctx context.Context, st *chatStage) (string, error) {
	const conv, body = "c-recall", "this was for somebody else"
	if err := st.create(&env{ctx: ctx}, conv, lifePeople, 0); err != nil {
		return "", err
	}
	k := &cable{}
	dora, err := st.open("u-dora", "phone", nil)
	if err != nil {
		return "", err
	}
	phone, err := st.open("u-emil", "phone", nil)
	if err != nil {
		return "", err
	}
	tablet, err := st.open("u-emil", "tablet", nil, k.use)
	if err != nil {
		return "", err
	}
	sent, err := stored(ctx, dora, conv, "m-1", body)
	if err != nil {
		return "", err
	}
	for _, d := range []*device{phone, tablet} {
		if err := d.hears(ctx, "the message", arrived(sent.Seq)); err != nil {
			return "", err
		}
	}
	k.pull()
	pending, err := dora.Recall(client.Recall{Conv: conv, Target: client.Position{Epoch: sent.Epoch, Seq: sent.Seq}})
	if err != nil {
		return "", fmt.Errorf("recall: %w", err)
	}
	done, err := pending.Wait(ctx)
	if err != nil {
		return "", fmt.Errorf("recall: %w", err)
	}
	if err := phone.hears(ctx, "the recall at the connected device", recalled(sent.Seq)); err != nil {
		return "", err
	}
	away := tablet.text(conv, sent.Seq)
	k.plug()
	tablet.Reconnect()
	if err := tablet.hears(ctx, "the recall at the device that was away", recalled(sent.Seq)); err != nil {
		return "", err
	}
	rows, err := value[int](ctx, st, `SELECT count(*) FROM tidings.event e WHERE strpos(e::text, $1) > 0`, body)
	if err != nil {
		return "", err
	}
	if left := phone.text(conv, sent.Seq) + tablet.text(conv, sent.Seq) + dora.text(conv, sent.Seq); left != "" || away != body || rows != 0 || done.Seq != sent.Seq+1 {
		return "", fmt.Errorf("the devices still have %q, the one that was away had %q, %d rows have the text, the recall is event %d", left, away, rows, done.Seq)
	}
	return fmt.Sprintf("The recall of seq %d is event %d. The row has no text any more, nor has the connected device; the other one kept its copy until it was back.", sent.Seq, done.Seq), nil
}

func resendPurged(ctx context.Context, st *chatStage) (string, error) {
	const conv, cmid, retention = "c-short", "m-late", 300 * time.Millisecond
	if err := st.create(&env{ctx: ctx}, conv, lifePeople, retention); err != nil {
		return "", err
	}
	outbox := func(cfg *client.Config) { cfg.Outbox = filepath.Join(st.dir, "dora.outbox") }
	laptop, err := st.open("u-dora", "laptop", func(frame []byte) ([][]byte, bool) {
		if kind(frame) == "sent" {
			return nil, true
		}
		return [][]byte{frame}, false
	}, outbox)
	if err != nil {
		return "", err
	}
	if _, err := laptop.Send(client.Message{Conv: conv, Cmid: cmid, Body: "is anybody there?"}); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	if err := st.awaits(ctx, "the message in the log", `SELECT EXISTS (SELECT FROM tidings.event WHERE conv_id = $1 AND cmid = $2)`, conv, cmid); err != nil {
		return "", err
	}
	if err := laptop.Close(); err != nil {
		return "", err
	}
	if err := st.awaits(ctx, "the end of the retention", `SELECT coalesce(max(created_at) < clock_timestamp() - $2::int * interval '1 millisecond', true)
		FROM tidings.event WHERE conv_id = $1`, conv, retention.Milliseconds()); err != nil {
		return "", err
	}
	purge := purgeCmd{database: database{URL: st.box.DatabaseURL()}, TombstonesFor: 30 * 24 * time.Hour}
	if err := purge.Run(&env{ctx: ctx, stdout: io.Discard, stderr: io.Discard}); err != nil {
		return "", fmt.Errorf("tidings purge: %w", err)
	}
	again, err := st.open("u-dora", "laptop", nil, outbox)
	if err != nil {
		return "", err
	}
	var end client.Ended
	if err := again.hears(ctx, "the end of the message", func(u client.Update) (ok bool) { end, ok = u.(client.Ended); return ok && end.Cmid == cmid }); err != nil {
		return "", err
	}
	var gap client.Withheld
	if err := again.hears(ctx, "the trimmed range", func(u client.Update) (ok bool) { gap, ok = u.(client.Withheld); return ok && gap.Conv == conv }); err != nil {
		return "", err
	}
	left, err := value[int](ctx, st, `SELECT count(*) FROM tidings.event WHERE conv_id = $1`, conv)
	if err != nil {
		return "", err
	}
	if code := tidings.ErrorCode(end.Err); code != tidings.OriginalExpired || left != 0 || gap.To != end.Sent.Seq || gap.Why != "trimmed" {
		return "", fmt.Errorf("the answer is %v (seq %d), %d events are left, withheld is %d to %d: %s", end.Err, end.Sent.Seq, left, gap.From, gap.To, gap.Why)
	}
	return fmt.Sprintf("It is sent again and answered with %s: it was seq %d and is not stored a second time. A device that asks for the log is told that %d to %d are trimmed.",
		tidings.OriginalExpired, end.Sent.Seq, gap.From, gap.To), nil
}
