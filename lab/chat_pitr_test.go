// The check 31-pitr.

package lab_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
)

func init() {
	lab.Register(lab.Check{
		ID: "31-pitr",
		Expect: "base backup, 20 messages, an instant, 10 messages more, a recall and a leave; the server stops immediately; another, recovered from backup and archive to the instant, has " +
			"the 20 and not the 10; after a recovery with the journal the message is recalled and the member is gone there, too, no invariant is violated, a gateway serves it under a new epoch",
		Run: pointInTime,
	})
}

// archive is where a server's WAL goes, beside its data: the directory of the account that the server runs as.
func archive(server *localpg.Server) string {
	return filepath.Join(filepath.Dir(server.DataDir()), "archive")
}

// archivingDatabase starts a PostgreSQL that archives its WAL, with the product's schema.
func archivingDatabase(t *lab.T) (*localpg.Server, *chat) {
	t.Helper()
	server, err := localpg.Start(t.Context(), localpg.Options{Settings: map[string]string{
		"archive_mode":    "on",
		"archive_command": "mkdir -p ../archive && test ! -f ../archive/%f && cp %p ../archive/%f.part && mv ../archive/%f.part ../archive/%f",
	}})
	t.Must("start a PostgreSQL", err)
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Errorf("stop the PostgreSQL: %v", err)
		}
	})
	return server, chatAt(t, server, true)
}

// chatAt is a chat on a server of its own.
func chatAt(t *lab.T, server *localpg.Server, fresh bool) *chat {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), server.URL("postgres"))
	t.Must("open a pool", err)
	t.Cleanup(pool.Close)
	if !fresh {
		return &chat{scene: &scene{T: t, ctx: t.Context(), pool: pool}}
	}
	(&scene{T: t, ctx: t.Context(), pool: pool}).tidings("migrate")
	return chatOn(t, pool)
}

// standIn is a place for a second server: it has run once, so that all of it exists, and stands still.
type standIn struct {
	dir  string
	data string
	uid  int
	gid  int
}

func newStandIn(t *lab.T) *standIn {
	t.Helper()
	s := &standIn{dir: filepath.Join(t.TempDir(), "stand-in")}
	t.Cleanup(func() {
		if err := localpg.Remove(context.Background(), s.dir); err != nil {
			t.Errorf("remove the second PostgreSQL: %v", err)
		}
	})
	server, err := localpg.Start(t.Context(), localpg.Options{Dir: s.dir})
	t.Must("start a second PostgreSQL", err)
	t.Must("stop the second PostgreSQL", server.Stop(t.Context()))
	s.data = server.DataDir()
	info, err := os.Stat(s.data)
	t.Must("look at the second PostgreSQL's data", err)
	owner := info.Sys().(*syscall.Stat_t)
	s.uid, s.gid = int(owner.Uid), int(owner.Gid)
	return s
}

// baseBackup replaces the data by a base backup of a server that runs.
func (s *standIn) baseBackup(t *lab.T, of *localpg.Server) {
	t.Helper()
	t.Must("empty the second PostgreSQL's data", os.RemoveAll(s.data))
	program, err := localpg.FindClient("pg_basebackup", of.Binaries().Major, localpg.AnyMajor)
	t.Must("find pg_basebackup", err)
	t.Must("make a base backup", program.Run(t.Context(), of.URL("postgres"), "--pgdata="+s.data, "--checkpoint=fast"))
	from, err := url.Parse(of.URL("postgres"))
	t.Must("read the first server's URL", err)
	password, _ := from.User.Password() // the roles are in the backup
	s.write(t, filepath.Join(filepath.Dir(s.data), "password"), password)
	t.Must("hand the base backup over", filepath.WalkDir(s.data, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, s.uid, s.gid)
	}))
}

func (s *standIn) write(t *lab.T, file, text string) {
	t.Helper()
	t.Must("write "+filepath.Base(file), os.WriteFile(file, []byte(text), 0o600))
	t.Must("hand it over", os.Lchown(file, s.uid, s.gid))
}

// recover starts the server from its base backup, which goes on along the archive to an instant and takes writes then.
func (s *standIn) recover(t *lab.T, archive, until string) *localpg.Server {
	t.Helper()
	s.write(t, filepath.Join(s.data, "recovery.signal"), "")
	server, err := localpg.Start(t.Context(), localpg.Options{Dir: s.dir, Settings: map[string]string{
		"restore_command":        "cp " + archive + "/%f %p",
		"recovery_target_time":   until,
		"recovery_target_action": "promote",
	}})
	t.Must("recover to a point in time", err)
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Errorf("stop the second PostgreSQL: %v", err)
		}
	})
	return server
}

// archived waits until all WAL that was written so far is in the archive.
func (c *chat) archived() {
	c.Helper()
	file := one[string](c.scene, `SELECT pg_walfile_name(pg_switch_wal())`)
	c.Until("the WAL is archived", soon, func() bool {
		return one[bool](c.scene, `SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver`, file)
	})
}

func pointInTime(t *lab.T) {
	const kept, lost = 20, 10
	first, c := archivingDatabase(t)
	outside := t.TempDir()
	n := c.node("a", with("TIDINGS_OUTSIDE_DIR", outside))
	c.live(n)
	n.conversation("c-3", "ana", "ben")
	ana := n.device("ana", "ana-1")
	say := func(prefix string, count int) {
		t.Helper()
		for i := range count {
			cmid := fmt.Sprint(prefix, i)
			if i%2 == 0 {
				ana.say("c-3", cmid, "by WebSocket")
			} else if a := n.as("ana", http.MethodPut, "/v1/conversations/c-3/messages/"+cmid, map[string]any{"body": "by HTTP"}); a.status/100 != 2 {
				t.Fatalf("send %s: %d %s", cmid, a.status, a.raw)
			}
		}
	}
	second := newStandIn(t)
	second.baseBackup(t, first)
	say("kept-", kept)
	logs := map[string][]logged{}
	for _, conv := range []string{"c-1", "c-2", "c-3"} {
		logs[conv] = c.log(conv)
	}
	epoch := c.epoch("c-3")
	at := one[string](c.scene, `SELECT clock_timestamp()::text`)
	say("lost-", lost)
	ana.recallBy("c-3", "r-1", 3)
	n.leave("c-3", "ben")
	t.Until("the journal is outside", soon, func() bool {
		return one[int](c.scene, `SELECT count(*) FROM tidings.taken_back WHERE NOT copied`) == 0
	})
	c.archived()
	n.Kill()
	pid := first.PID()
	t.Must("stop the first PostgreSQL", first.StopImmediate(t.Context()))
	proof := ""
	if pid != 0 && first.PID() == 0 {
		proof = "its processes have ended"
	}
	t.Fault(fault.New("immediate stop", "the PostgreSQL with the newest data", proof))

	r := chatAt(t, second.recover(t, archive(first), at), false)
	r.key = c.key
	t.Until("the recovery has ended", soon, func() bool { return !one[bool](r.scene, `SELECT pg_is_in_recovery()`) })
	for conv, log := range logs {
		t.True("the log of "+conv+" is that of the instant", slices.Equal(log, r.log(conv)))
		t.Examined("events that had been committed by then", len(log))
	}
	t.Equal("messages that came later", 0, one[int](r.scene, `SELECT count(*) FROM tidings.event WHERE cmid LIKE 'lost-%' OR cmid = 'r-1' AND conv_id = 'c-3'`))
	t.Equal("before the recovery: questions that find a violation", []string{}, r.verify())

	r.tidings("recover", "--outside-dir", outside, "--lost-since", r.instant(at))
	t.Equal("questions that find a violation", []string{}, r.verify())
	t.Equal("the lab's own", []string{}, r.askOwn())
	t.True("the epoch is a later one", r.epoch("c-3") > epoch)
	t.Equal("the message that was recalled in the lost time: recalled, without content", []bool{true, true},
		one[[]bool](r.scene, `SELECT array[recalled_by IS NOT NULL, body IS NULL] FROM tidings.event WHERE conv_id = 'c-3' AND seq = 3`))
	t.Equal("open intervals of the member that left in the lost time", 0,
		one[int](r.scene, `SELECT count(*) FROM tidings.member WHERE conv_id = 'c-3' AND user_id = 'ben' AND leave_seq IS NULL`))

	m := r.node("b", with("TIDINGS_OUTSIDE_DIR", outside))
	ana = m.device("ana", "ana-1")
	again := func(cmid string) frame {
		t.Helper()
		return ana.ask(frame{"t": "send", "conv": "c-3", "cmid": cmid, "body": "by WebSocket"})
	}
	head := r.head("c-3")
	f := again("kept-2")
	t.Equal("kept-2 again", []any{"sent", true, int64(5)}, []any{f.t(), f.flag("dup"), f.num("seq")})
	f = again("lost-2")
	t.Equal("lost-2 again, which the log does not know", []any{"sent", false, head + 1}, []any{f.t(), f.flag("dup"), f.num("seq")})
	t.Equal("in the end: questions that find a violation", []string{}, r.verify())
}

// instant is a time of the database as the command line takes it, in whole seconds before it.
func (c *chat) instant(at string) string {
	return one[string](c.scene, `SELECT to_char(date_trunc('second', $1::timestamptz) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`, at)
}
