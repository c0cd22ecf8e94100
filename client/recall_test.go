// Tests of recalls that wait in the outbox.

package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
)

// A recall is in the file like a message, and goes before those that wait.
func TestARecallIsThereAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	reopen := func() *Client {
		c, err := Open(Config{URL: "ws://127.0.0.1:1", Device: "d-1", Outbox: path, Token: noToken, BackoffMin: time.Hour, BackoffMax: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := reopen()
	for _, cmid := range []string{"m-1", "m-2"} {
		if _, err := c.Send(Message{Conv: "c", Cmid: cmid, Body: "text"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Recall{{"c", Position{100, 7}, "r-1"}, {"c", Position{100, 8}, "r-2"}, {"c", Position{100, 7}, "r-1"}} {
		if p, err := c.Recall(r); err != nil || p.Target != r.Target {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // written by append, and by the rewriting at Open
		c = reopen()
		c.mu.Lock()
		var queue []string
		for _, e := range c.conversation("c").queue {
			queue = append(queue, e.Cmid)
		}
		c.mu.Unlock()
		if diff := cmp.Diff([]string{"r-1", "r-2", "m-1", "m-2"}, queue); diff != "" {
			t.Error(diff)
		}
		if list := c.Waiting(); len(list) != 4 || list[2].Target != (Position{100, 7}) || !list[2].InDoubt || list[0].recall() {
			t.Errorf("%+v", list)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The form before had no recalls.
func TestAnOlderOutboxIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	older := `{"op":"outbox","version":1,"device":"d-1","install":"i-1"}
{"op":"user","user":"u-ana"}
{"op":"sent","conv":"c","cmid":"m-1","body":"one","queued":"2026-01-02T03:04:05Z","seq":3,"mid":"mid","epoch":100,"at":5}
{"op":"queue","conv":"c","cmid":"m-2","body":"two","data":{"a":1},"queued":"2026-01-02T03:04:05Z"}
`
	if err := os.WriteFile(path, []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := outboxState{User: "u-ana", Waiting: []Entry{{Message: Message{"c", "m-2", "two", []byte(`{"a":1}`)}, At: at}},
		Sent: []sentEntry{{Entry{Message: Message{Conv: "c", Cmid: "m-1", Body: "one"}, At: at}, Sent{Seq: 3, Mid: "mid", Epoch: 100, At: 5}}}}
	for range 2 { // the second time it is of the present form
		f, state := open(t, path)
		if diff := cmp.Diff(want, state); diff != "" {
			t.Error(diff)
		}
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), `{"op":"outbox","version":2,`) {
		t.Errorf("%s, %v", b, err)
	}
}

// What is not told yet loses its body, too, and a file that cannot be rewritten at once is at the next chance.
func TestARecallEmptiesWhatWaits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "outbox")
	release := make(chan struct{})
	told := make(chan Ended, 1)
	c, err := Open(Config{URL: "ws://127.0.0.1:1", Device: "d-1", Outbox: path, Token: noToken, BackoffMin: time.Hour, BackoffMax: 10 * time.Millisecond,
		Handle: func(u Update) {
			<-release
			if u, ok := u.(Ended); ok {
				told <- u
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	const body = "a body that is recalled"
	for _, cmid := range []string{"m-1", "m-2"} {
		if _, err := c.Send(Message{Conv: "c", Cmid: cmid, Body: body, Data: []byte(`{"a":"` + body + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	contains := func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(b), body)
	}
	answer := func(seq int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		v := c.conversation("c")
		v.log.epoch = 100
		c.finish(v, v.queue[0], Sent{Seq: seq, Epoch: 100}, nil)
	}
	recalled := func(seq int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		e := tidings.Event{Conv: "c", Seq: seq + 2, Kind: tidings.KindRecall, Target: seq}
		c.takeBack(c.conversation("c"), 100, &e)
	}
	answer(1)
	if !contains() {
		t.Fatal("the body is not in the file before the recall: the test looks in vain")
	}
	place := func(path string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.file.path = path
	}
	place(filepath.Join(dir, "is-not-there", "outbox"))
	recalled(1)
	c.mu.Lock()
	if err := c.compact(); err == nil || !c.stained {
		t.Errorf("a file in a place that is not there: %v", err)
	}
	c.mu.Unlock()
	answer(2)
	recalled(2)
	place(path)
	close(release)
	for range 2 {
		if u := <-told; u.Body != "" || u.Data != nil || u.Sent.Epoch != 100 {
			t.Errorf("Handle is told %+v", u)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); contains(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the body stays in the file")
		}
	}
	recalled(2) // of one that is not known any more
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, state := open(t, path); len(state.Sent)+len(state.Waiting) > 0 {
		t.Errorf("remembered are %+v", state)
	}
}
