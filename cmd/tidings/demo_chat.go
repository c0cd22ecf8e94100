// The scenes of conversations in the demo.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/cmd/tidings/internal/relay"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
	"github.com/tidings-project/tidings/internal/token"
)

// demoConv is the conversation of the demo, between three people.
const demoConv = "c-demo"

var demoPeople = []string{"u-ana", "u-ben", "u-cai"}

// chatStage is where the scenes of the conversation are played: one server, and devices that come and go.
type chatStage struct {
	env    *env
	box    *sandbox.Sandbox
	api    remote
	secret string         // of the tokens
	dir    string         // for files; also the server's, for what lies outside of the database
	level  *slog.LevelVar // from which on the server's log is printed

	mu      sync.Mutex
	devices []*device // that are open
	written int       // messages that have to be in the log
}

// device is a client with what it has told its application.
type device struct {
	*client.Client
	user  string
	relay *relay.Relay // what it connects through, if anything

	mu     sync.Mutex
	told   []client.Update // but for the state of the connection
	seqs   []int64         // of the events, in the order in which they came
	bodies []string
	read   int64
	unread int64
	stir   chan struct{}
}

func (d *device) handle(u client.Update) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch u := u.(type) {
	case client.Arrived:
		d.seqs = append(d.seqs, u.Event.Seq)
		if u.Event.Body != nil {
			d.bodies = append(d.bodies, *u.Event.Body)
		}
	case client.ReadMoved:
		d.read, d.unread = u.Seq, u.Unread
	}
	if _, state := u.(client.Connection); !state {
		d.told = append(d.told, u)
	}
	close(d.stir)
	d.stir = make(chan struct{})
}

// until waits until cond, which runs under the device's lock, holds.
func (d *device) until(ctx context.Context, what string, cond func() bool) error {
	for {
		d.mu.Lock()
		ok, stir := cond(), d.stir
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-stir:
		case <-ctx.Done():
			return fmt.Errorf("%s: it did not come in time", what)
		}
	}
}

// open connects a device of a user; down, if any, stands between it and the server.
func (st *chatStage) open(user, name string, down func([]byte) ([][]byte, bool), change ...func(*client.Config)) (*device, error) {
	d := &device{user: user, stir: make(chan struct{})}
	url := st.api.URL
	if down != nil {
		var err error
		if d.relay, err = relay.Start(url); err != nil {
			return nil, err
		}
		d.relay.Down = down
		url = d.relay.URL()
	}
	cfg := client.Config{URL: url, Device: user + "-" + name, Name: "tidings-demo", Handle: d.handle, BackoffMin: 20 * time.Millisecond,
		Token: func(context.Context) (client.Token, error) {
			expires := time.Now().Add(time.Hour)
			text, err := token.IssueHS256([]byte(st.secret), "tidings", token.Claims{User: user, Issued: time.Now(), Expires: expires})
			return client.Token{Text: text, Expires: expires}, err
		}}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if d.Client, err = client.Open(cfg); err != nil {
		return nil, fmt.Errorf("connect %s's %s: %w", user, name, err)
	}
	st.mu.Lock()
	st.devices = append(st.devices, d)
	st.mu.Unlock()
	return d, nil
}

// close ends all devices.
func (st *chatStage) close() (err error) {
	for _, d := range st.devices {
		err = errors.Join(err, d.Close())
		if d.relay != nil {
			d.relay.Close()
		}
	}
	st.devices = nil
	return err
}

// say sends a message and waits for the final answer.
func (st *chatStage) say(ctx context.Context, d *device, body string) (client.Sent, error) {
	pending, err := d.Send(client.Message{Conv: demoConv, Body: body})
	if err != nil {
		return client.Sent{}, fmt.Errorf("send: %w", err)
	}
	sent, err := pending.Wait(ctx)
	if err != nil {
		return client.Sent{}, fmt.Errorf("wait for the answer: %w", err)
	}
	st.mu.Lock()
	st.written++
	st.mu.Unlock()
	return sent, nil
}

// whole waits until a device has the log up to seq and says what is wrong with the way in which it came.
func (st *chatStage) whole(ctx context.Context, d *device, seq int64) error {
	if err := d.until(ctx, fmt.Sprintf("event %d", seq), func() bool { return len(d.seqs) > 0 && d.seqs[len(d.seqs)-1] >= seq }); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The joins are the first events, in the order of the people, and each sees the log from their own on.
	joined := int64(slices.Index(demoPeople, d.user) + 1)
	for i, s := range d.seqs {
		if s != joined+int64(i) {
			return fmt.Errorf("a device got event %d where %d was due", s, joined+int64(i))
		}
	}
	return nil
}

// head is the newest seq of the log.
func (st *chatStage) head() int64 { return int64(len(demoPeople) + st.written) }

// chatScene is one story of the conversation. It returns what to print, and an error when it ended otherwise than it should.
type chatScene struct {
	title string
	play  func(ctx context.Context, st *chatStage) (string, error)
}

var chatScenes = []chatScene{
	{"Three people write at the same time.", writeTogether},
	{"The answer to a message is lost, and the connection with it. The client sends the message again.", loseAnswer},
	{"Pushes come in the wrong order, and one of them twice.", reorderPushes},
	{"A device was away and catches up.", catchUp},
	{"Somebody reads on one device.", readElsewhere},
}

func writeTogether(ctx context.Context, st *chatStage) (string, error) {
	const each = 20
	var people []*device
	for _, user := range demoPeople {
		d, err := st.open(user, "phone", nil)
		if err != nil {
			return "", err
		}
		people = append(people, d)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(people))
	for i, d := range people {
		wg.Go(func() {
			for n := range each {
				if _, err := st.say(ctx, d, fmt.Sprintf("%s says %d", demoPeople[i], n+1)); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	for _, d := range people {
		if err := st.whole(ctx, d, st.head()); err != nil {
			return "", err
		}
		if !slices.Equal(d.bodies, people[0].bodies) {
			return "", errors.New("two devices have different logs")
		}
	}
	return fmt.Sprintf("%d messages, seq 1 to %d (%d of them are the joins) without a hole, and all three devices have the same log in the same order.",
		len(people)*each, st.head(), len(demoPeople)), nil
}

func loseAnswer(ctx context.Context, st *chatStage) (string, error) {
	lost := 0 // on one connection's goroutine at a time
	d, err := st.open("u-ana", "laptop", func(frame []byte) ([][]byte, bool) {
		if kind(frame) == "sent" && lost == 0 {
			lost++
			return nil, true
		}
		return [][]byte{frame}, false
	})
	if err != nil {
		return "", err
	}
	sent, err := st.say(ctx, d, "did you get this?")
	if err != nil {
		return "", err
	}
	if err := st.whole(ctx, d, st.head()); err != nil {
		return "", err
	}
	n := 0
	for _, body := range d.bodies {
		if body == "did you get this?" {
			n++
		}
	}
	if lost != 1 || !sent.Dup || sent.Seq != st.head() || n != 1 {
		return "", fmt.Errorf("%d answers were lost, the last one says dup=%t and seq %d, and the message is there %s", lost, sent.Dup, sent.Seq, times(int64(n)))
	}
	return fmt.Sprintf("The second answer says: it is stored at seq %d already (dup=true). The log has the message once.", sent.Seq), nil
}

func reorderPushes(ctx context.Context, st *chatStage) (string, error) {
	var order []int64 // the seqs as they were let through
	var held []byte
	d, err := st.open("u-ben", "laptop", func(frame []byte) ([][]byte, bool) {
		seq := pushed(frame)
		if seq == 0 {
			return [][]byte{frame}, false
		}
		if held == nil {
			held = frame
			return nil, false
		}
		first := held
		held = nil
		order = append(order, seq, seq, pushed(first))
		return [][]byte{frame, frame, first}, false
	})
	if err != nil {
		return "", err
	}
	if err := st.whole(ctx, d, st.head()); err != nil {
		return "", err
	}
	for _, body := range []string{"one", "two"} {
		if _, err := st.say(ctx, st.devices[0], body); err != nil {
			return "", err
		}
	}
	if err := st.whole(ctx, d, st.head()); err != nil {
		return "", err
	}
	if len(order) < 3 {
		return "", errors.New("no pushes were reordered")
	}
	return fmt.Sprintf("The network delivered the events %v; the application got each once, in order.", order), nil
}

func catchUp(ctx context.Context, st *chatStage) (string, error) {
	d, err := st.open("u-cai", "tablet", nil)
	if err != nil {
		return "", err
	}
	if err := st.whole(ctx, d, st.head()); err != nil {
		return "", err
	}
	if err := d.Close(); err != nil {
		return "", err
	}
	const missed = 30
	for n := range missed {
		if _, err := st.say(ctx, st.devices[1], fmt.Sprintf("while you were away: %d", n+1)); err != nil {
			return "", err
		}
	}
	again, err := st.open("u-cai", "tablet", nil)
	if err != nil {
		return "", err
	}
	if err := st.whole(ctx, again, st.head()); err != nil {
		return "", err
	}
	return fmt.Sprintf("It missed %d messages and has the log up to seq %d now.", missed, st.head()), nil
}

func readElsewhere(ctx context.Context, st *chatStage) (string, error) {
	phone, laptop := st.devices[1], (*device)(nil)
	laptop, err := st.open("u-ben", "second-laptop", nil)
	if err != nil {
		return "", err
	}
	for _, d := range []*device{phone, laptop} {
		if err := st.whole(ctx, d, st.head()); err != nil {
			return "", err
		}
	}
	head := st.head()
	laptop.MarkRead(demoConv, head)
	if err := phone.until(ctx, "the read mark", func() bool { return phone.read == head }); err != nil {
		return "", err
	}
	if phone.unread != 0 {
		return "", fmt.Errorf("%d are unread", phone.unread)
	}
	list, err := phone.Conversations(ctx)
	if err != nil {
		return "", err
	}
	if len(list) != 1 || list[0].Read != head || list[0].Unread != 0 {
		return "", fmt.Errorf("the list says %+v", list)
	}
	return fmt.Sprintf("Read on the laptop up to seq %d; the phone was told: nothing is unread.", head), nil
}

// kind is the type of a frame.
func kind(frame []byte) string {
	var f struct {
		T string `json:"t"`
	}
	_ = json.Unmarshal(frame, &f) // what is none has no type
	return f.T
}

// pushed is the seq of a pushed event, or 0.
func pushed(frame []byte) int64 {
	var f struct {
		T     string        `json:"t"`
		Event tidings.Event `json:"event"`
	}
	if json.Unmarshal(frame, &f) != nil || f.T != "event" {
		return 0
	}
	return f.Event.Seq
}

// notPlayed says why a scene cannot be played on this machine.
type notPlayed struct{ error }

// playChat plays the scenes of conversations, numbered on from n. It returns how many have ended as they should, and what went wrong.
func playChat(e *env, st *chatStage, n int) (ended int, wrong []string) {
	defer func() {
		if err := st.close(); err != nil {
			wrong = append(wrong, fmt.Sprintf("close the devices: %v", err))
		}
	}()
	if err := st.create(e, demoConv, demoPeople, 0); err != nil {
		return 0, []string{err.Error()}
	}
	for i, sc := range slices.Concat(chatScenes, lifeScenes) {
		if e.ctx.Err() != nil {
			break
		}
		fmt.Fprintf(e.stdout, "\n%d. %s\n", n+i+1, sc.title)
		ctx, cancel := context.WithTimeout(e.ctx, demoPatience)
		report, err := sc.play(ctx, st)
		cancel()
		var not notPlayed
		switch {
		case errors.As(err, &not):
			fmt.Fprintf(e.stdout, "   Not played: %v\n", not)
		case err != nil:
			fmt.Fprintf(e.stdout, "   WRONG: %v\n", err)
			wrong = append(wrong, fmt.Sprintf("scene %d: %v", n+i+1, err))
		default:
			fmt.Fprintf(e.stdout, "   %s\n", report)
			ended++
		}
	}
	return ended, wrong
}

// create creates a conversation; retention 0: it keeps everything.
func (st *chatStage) create(e *env, conv string, members []string, retention time.Duration) error {
	settings := map[string]any{"members": members}
	if retention > 0 {
		settings["retention_ms"] = retention.Milliseconds()
	}
	if err := st.api.call(e, "PUT", "/v1/conversations/"+conv, settings, nil); err != nil {
		return fmt.Errorf("create a conversation: %w", err)
	}
	return nil
}
