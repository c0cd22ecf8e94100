// Tests of what children say, and of what is kept of it.

package front

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// What is killed, or told to stop, does not come up any more, whoever says so at what moment; and an order that comes late does not hit the process after it.
func TestOrdersThatCross(t *testing.T) {
	var log journal
	c := &child{name: "a", title: "gateway a", tell: log.add, state: stateDown}
	begin := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { // ends with the process, which is killed below
			_ = cmd.Wait()
			close(ended)
		}()
		c.mu.Lock()
		c.process, c.left, c.ended = cmd.Process, false, ended
		c.mu.Unlock()
		return cmd
	}
	for _, order := range []func() error{c.kill, c.drain} {
		first := begin()
		c.up(first.Process)
		if state, pid := c.now(); state != stateUp || pid != first.Process.Pid {
			t.Fatalf("it is %s, process %d", state, pid)
		}
		var storm sync.WaitGroup
		for range 20 {
			storm.Go(func() { _ = order() }) // it has ended for all but one
		}
		c.up(first.Process) // it was asked before whether it serves
		storm.Wait()
		c.up(first.Process)
		if state, _ := c.now(); state == stateUp {
			t.Errorf("what was told to end is %s", state)
		}
		<-c.ended
		c.gone(first.Process)
		if err := order(); err != errDown {
			t.Errorf("an order without a process: %v", err)
		}
		next := begin()
		c.up(first.Process) // late
		c.gone(first.Process)
		if state, pid := c.now(); state != stateDown || pid != next.Process.Pid {
			t.Errorf("before it serves the next one is %s, process %d", state, pid)
		}
		c.up(next.Process)
		if state, _ := c.now(); state != stateUp {
			t.Errorf("the next one is %s", state)
		}
		if err := c.kill(); err != nil {
			t.Error(err)
		}
	}
}

func TestPrefixedWritesWholeLines(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{to: &out, prefix: "a | "}
	for _, text := range []string{"one\ntw", "o\n", "\n", strings.Repeat("x", longestLine+1), "rest"} {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if want := "a | one\na | two\na | \na | " + strings.Repeat("x", longestLine+1) + "\n"; out.String() != want {
		t.Errorf("it wrote %.60q", out.String())
	}
}

func TestJournalKeepsTheNewest(t *testing.T) {
	var j journal
	for n := range 2 * kept {
		j.add("line %d", n)
	}
	all := j.all()
	if len(all) != kept || all[0].Text != "line 50" || all[kept-1].Text != "line 99" {
		t.Errorf("it keeps %d, from %q to %q", len(all), all[0].Text, all[len(all)-1].Text)
	}
}
