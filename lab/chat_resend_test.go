// The check 06-client-outbox-resend.

package lab_test

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
	"github.com/tidings-project/tidings/lab/tcpproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "06-client-outbox-resend",
		Expect: "the client's connection is cut when a message is committed and not answered, when one is on its way, and while messages wait, some of them beyond the end of " +
			"the client: it resends them by itself, the first with dup=true; one row per cmid, in the order of the outbox, which is empty in the end",
		Run: outboxResent,
	})
}

func outboxResent(t *lab.T) {
	c := newChat(t)
	way := c.proxy()
	n := c.node("a", through(way))
	n.conversation("c-1", "ana", "ben")
	ben := n.device("ben", "ben-1")
	line := tcpproxy.Start(c, strings.TrimPrefix(n.url, "http://"))
	file := filepath.Join(t.TempDir(), "outbox")
	kept := func(config *client.Config) { config.Outbox = file }
	ana := c.app("http://"+line.Addr(), "ana", "ana-1", kept)
	ana.becomes(client.Online)

	// Committed, and the answer lost with the connection.
	trap := way.Arm(pgproxy.Rule{What: "the send", Match: theSend, When: pgproxy.After, Do: pgproxy.Hold})
	first := ana.queue("c-1", "m-1", "committed, not answered")
	c.Fault(trap.Wait(soon))
	c.Fault(line.Cut(tcpproxy.Both))
	trap.Release()
	sent := ana.answered(first)
	c.Equal("committed before the cut: seq, dup", []any{3, true}, []any{sent.Seq, sent.Dup})

	// Swallowed on the way: the gateway has not seen it.
	ana.becomes(client.Online)
	c.Fault(line.Hold(tcpproxy.ToServer))
	ana.queue("c-1", "m-2", "not arrived")
	c.Equal("in the outbox", []string{"m-2"}, cmids(ana.Waiting()))
	c.Fault(line.Refuse())
	c.Fault(line.Cut(tcpproxy.Both))
	line.Release(tcpproxy.ToServer)
	ana.becomes(client.Offline)
	c.Equal("rows before the reconnect", []int64{}, c.seqs("c-1", "ana", "m-2"))

	// Queued without a connection, and some of it by a process that ends.
	var want []string
	for i := 3; i <= 7; i++ {
		if i == 5 {
			c.Must("close the client", ana.Close())
			c.Fault(fault.New("end of the process", "the client", fmt.Sprintf("it was closed with %d messages in its outbox", len(ana.Waiting()))))
			ana = c.app("http://"+line.Addr(), "ana", "ana-1", kept)
		}
		ana.queue("c-1", fmt.Sprint("m-", i), "queued")
	}
	for i := 2; i <= 7; i++ {
		want = append(want, fmt.Sprint("m-", i))
	}
	c.Equal("in the outbox", want, cmids(ana.Waiting()))
	c.Equal("messages of the log", 1, len(bodies(c.log("c-1"))))
	c.Must("let connections through again", line.Accept())
	c.Must("wait for the outbox", ana.Flush(c.ctx))
	ben.event("c-1", 9)

	var stored []string
	for _, e := range c.log("c-1") {
		if e.kind == "msg" {
			stored = append(stored, fmt.Sprintf("%d %s", e.seq, e.cmid))
		}
	}
	c.Equal("the log, one row per cmid", []string{"3 m-1", "4 m-2", "5 m-3", "6 m-4", "7 m-5", "8 m-6", "9 m-7"}, stored)
	c.Equal("in the outbox in the end", []string{}, cmids(ana.Waiting()))
	c.Until("all of the log arrives at the client", soon, func() bool { return len(ana.arrived("c-1")) == 9 })
	c.Equal("arrived at the client", []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, ana.arrived("c-1"))
	ended := 0
	for _, u := range ana.told() {
		if e, ok := u.(client.Ended); ok && e.Err == nil {
			ended++
		}
	}
	c.Equal("final answers that the new client told", 6, ended)
	c.whole()
}

func cmids(entries []client.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Cmid)
	}
	return all
}
