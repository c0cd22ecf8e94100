// The check 32-control-lineage.

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/outbox"
)

func init() {
	lab.Register(lab.Check{
		ID: "32-control-lineage",
		Expect: "a sender that judges each new connection by system identifier and checkpoint timeline alone serves a file copy of its database that was put back, and a dump that was restored " +
			"in place: the same (conv, epoch, seq) is given to two messages; a gateway beside it refuses both",
		Run: naiveLineage,
	})
}

// naiveSender judges by what every PostgreSQL shows at once.
type naiveSender struct {
	url      string
	conn     *pgx.Conn
	system   string
	timeline int64
}

var errOther = errors.New("it is another history")

// connect judges a new connection.
func (n *naiveSender) connect(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, n.url)
	if err != nil {
		return err
	}
	var system string
	var timeline int64
	if err = conn.QueryRow(ctx, `SELECT (SELECT system_identifier FROM pg_control_system())::text, (SELECT timeline_id FROM pg_control_checkpoint())`).Scan(&system, &timeline); err == nil &&
		n.system != "" && (system != n.system || timeline != n.timeline) {
		err = errOther
	}
	if err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	n.conn, n.system, n.timeline = conn, system, timeline
	return nil
}

// send sends a message, on a new connection if the old one was lost.
func (n *naiveSender) send(ctx context.Context, cmid string) (tidings.Answer, error) {
	for try := 0; ; try++ {
		if n.conn == nil || n.conn.IsClosed() {
			if err := n.connect(ctx); err != nil {
				return tidings.Answer{}, err
			}
		}
		answers, err := outbox.Post(ctx, n.conn, tidings.Message{Conv: "c", Sender: "ana", Cmid: cmid, Body: cmid})
		if err == nil {
			return answers[0], nil
		}
		if try > 0 {
			return tidings.Answer{}, err
		}
		_ = n.conn.Close(ctx) // it was lost
	}
}

func naiveLineage(t *lab.T) {
	server, err := localpg.Start(t.Context(), localpg.Options{})
	t.Must("start a PostgreSQL", err)
	stopAtEnd(t, server)
	h := newHistories(t, server)
	h.quiet()
	naive := &naiveSender{url: server.URL("chat")}
	t.Cleanup(func() {
		if naive.conn != nil {
			_ = naive.conn.Close(context.Background())
		}
	})
	file := t.TempDir() + "/dump"
	database := "--dbname=" + server.URL("chat")
	for _, scene := range []struct {
		name        string
		copy, place func() error
	}{
		{"files put back", func() error { return server.Copy(h.ctx, "files") }, func() error { return server.PutBack(h.ctx, "files") }},
		{"a dump restored in place", func() error { return h.run(server, "pg_dump", "--format=custom", "--file="+file, database) },
			func() error {
				return h.run(server, "pg_restore", "--clean", "--if-exists", "--exit-on-error", database, file)
			}},
	} {
		name := scene.name
		t.Must(name+": copy", scene.copy())
		h.logWhenItIsThere()
		epoch := h.epoch("c")
		var ana *peer
		for f := (frame{}); f.t() != "sent"; { // the copy was a restart, which may close the socket
			ana = h.nodes[0].reconnect("ana", "ana-1")
			f = ana.insist("c", fmt.Sprintf("known-%d", epoch), "hello", &h.refused[0])
		}
		first, err := naive.send(h.ctx, fmt.Sprintf("first-%d", epoch))
		t.Must(name+": send before", err)
		t.Must(name, scene.place())
		h.pool.Reset()
		h.Until("the gateway refuses", 2*soon, func() bool { return strings.Contains(h.nodes[0].unready(), "restored or replaced") })
		code := ana.closed(2 * soon).num("close")
		second := tidings.Answer{}
		h.Until("the naive sender is answered", 2*soon, func() bool {
			var err error
			second, err = naive.send(h.ctx, fmt.Sprintf("second-%d", epoch))
			return err == nil || errors.Is(err, errOther)
		})
		t.Equal(name+": the gateway's close code", 4005, code)
		contents := map[tidings.UUID]bool{first.Mid: true}
		if second.Epoch == first.Epoch && second.Seq <= first.Seq {
			contents[second.Mid] = true
		}
		t.Exposed(name+": messages at one place (epoch, seq)", 1, len(contents))
		h.tidings("recover", "--without-journal")
		h.Until("the gateway serves again", 2*soon, func() bool { return h.nodes[0].unready() == "" })
	}
}
