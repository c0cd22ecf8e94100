// Tests of the outbox on the disk.

package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
)

func entryOf(cmid string) *Entry {
	return &Entry{Message: Message{Conv: "c", Cmid: cmid, Body: "text\n of " + cmid, Data: []byte(`{"a":1}`)}, At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
}

func open(t *testing.T, path string) (*outboxFile, outboxState) {
	t.Helper()
	f, state, err := openOutbox(path, "d-1", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.close() })
	return f, state
}

func TestTheOutboxIsThereAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	f, _ := open(t, path)
	install := f.install
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := f.queue(entryOf(fmt.Sprint("m-", i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, l := range []line{sentLine(entryOf("m-3"), Sent{Seq: 7, Mid: "mid", Epoch: 100, At: 5}), {Op: "end", Conv: "c", Cmid: "m-4"}, {Op: "user", User: "u-ana"}} {
		if _, err := f.append(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	f, state := open(t, path)
	if f.install != install || state.User != "u-ana" || len(state.Waiting) != 18 {
		t.Fatalf("installation %s, user %s, %d entries", f.install, state.User, len(state.Waiting))
	}
	for _, e := range state.Waiting {
		if diff := cmp.Diff(*entryOf(e.Cmid), e); diff != "" {
			t.Fatal(diff)
		}
	}
	want := []sentEntry{{*entryOf("m-3"), Sent{Seq: 7, Mid: "mid", Epoch: 100, At: 5}}}
	if diff := cmp.Diff(want, state.Sent); diff != "" {
		t.Fatal(diff)
	}
}

// A crash can end the file anywhere: what lies before the last whole line is there, and writing goes on.
func TestTheOutboxCanBeTornAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	f, _ := open(t, path)
	for i := range 3 {
		if err := f.queue(entryOf(fmt.Sprint("m-", i))); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := strings.IndexByte(string(whole), '\n') + 1
	for size := head; size <= len(whole); size++ {
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		f, state := open(t, path)
		if lines := strings.Count(string(whole[head:size]), "\n"); len(state.Waiting) != lines {
			t.Fatalf("after %d bytes there are %d entries, not %d", size, len(state.Waiting), lines)
		}
		if err := f.queue(entryOf("later")); err != nil {
			t.Fatal(err)
		}
		_ = f.close()
		f, again := open(t, path)
		if len(again.Waiting) != len(state.Waiting)+1 {
			t.Fatalf("after %d bytes and one more entry there are %d", size, len(again.Waiting))
		}
		_ = f.close()
	}
}

func TestTheOutboxIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	f, _ := open(t, path)
	if err := f.queue(entryOf("m-1")); err != nil {
		t.Fatal(err)
	}
	refused := func(why, device, install string) {
		t.Helper()
		if f, _, err := openOutbox(path, device, install); err == nil {
			_ = f.close()
			t.Fatalf("it was opened, %s", why)
		}
	}
	refused("twice at once", "d-1", "")
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if err := f.queue(entryOf("m-2")); tidings.ErrorCode(err) != tidings.OutcomeUnknown {
		t.Fatalf("a closed file takes a message: %v", err)
	}
	refused("by another device", "d-2", "")
	refused("by another installation", "d-1", "i-2")
	b, _ := os.ReadFile(path)
	for name, text := range map[string]string{"damaged in the middle": strings.Replace(string(b), `"queue"`, `"que`, 1) + "\n{}\n",
		"of a later version": strings.Replace(string(b), `"version":2`, `"version":3`, 1), "no outbox": "{\"a\":1}\n", "empty": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(name, "d-1", "")
	}
}

func TestTheOutboxStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	c, err := Open(Config{URL: "ws://127.0.0.1:1", Device: "d-1", Outbox: path, Token: noToken, BackoffMin: time.Hour, BackoffMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		p, err := c.Send(Message{Conv: "c", Cmid: fmt.Sprint("m-", i), Body: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if i%100 > 0 {
			if err := c.Discard("c", p.Cmid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if lines := strings.Count(string(b), "\n"); err != nil || lines > 2500 {
		t.Fatalf("the file has %d lines, %v", lines, err)
	}
	_, state := open(t, path)
	if len(state.Waiting) != 15 || state.Waiting[3].Cmid != "m-300" {
		t.Fatalf("%d entries are left", len(state.Waiting))
	}
}

// A message can be discarded while Send still waits for the disk: then it is neither sent nor there again.
func TestDiscardDuringSend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	c, err := Open(Config{URL: "ws://127.0.0.1:1", Device: "d-1", Outbox: path, Token: noToken, BackoffMin: time.Hour, BackoffMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		cmid := fmt.Sprint("m-", i)
		discarded := make(chan error)
		go func() {
			for len(c.Waiting()) == 0 {
				runtime.Gosched()
			}
			discarded <- c.Discard("c", cmid)
		}()
		if _, err := c.Send(Message{Conv: "c", Cmid: cmid, Body: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := <-discarded; err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	if n := len(c.conversation("c").queue); n > 0 {
		t.Errorf("%d discarded messages are to be sent", n)
	}
	c.mu.Unlock()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, state := open(t, path); len(state.Waiting) > 0 {
		t.Errorf("%d discarded messages are in the file", len(state.Waiting))
	}
}

// A call of Sync that was given up leaves nothing behind.
func TestSyncGivenUp(t *testing.T) {
	c, err := Open(Config{URL: "ws://127.0.0.1:1", Device: "d-1", Token: noToken, BackoffMin: time.Hour, BackoffMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if err := c.Sync(ctx, "c"); tidings.ErrorCode(err) != tidings.Unavailable {
			t.Errorf("a sync that was given up: %v", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.conversation("c"); len(v.waiters)+len(v.served) > 0 {
		t.Errorf("%d still wait", len(v.waiters)+len(v.served))
	}
}
