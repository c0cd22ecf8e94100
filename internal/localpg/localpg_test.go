// Tests of a private PostgreSQL.

package localpg

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Settings: map[string]string{"work_mem": "7MB", "application_name": `it's a \ test`}})
	url := s.URL("postgres")
	for name, want := range map[string]string{
		"fsync":                   "on",
		"synchronous_commit":      "on",
		"full_page_writes":        "on",
		"autovacuum":              "on",
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"server_encoding":         "UTF8",
		"TimeZone":                "UTC",
		"max_connections":         "200",
		"shared_buffers":          "256MB",
		"work_mem":                "7MB",
		"application_name":        `it's a \ test`,
	} {
		if got := query[string](t, url, `SELECT current_setting('`+name+`')`); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if got := query[string](t, url, `SELECT datcollate FROM pg_database WHERE datname = 'template1'`); got != "C" {
		t.Errorf("collation = %q, want C", got)
	}
	lz4 := query[bool](t, url, `SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'wal_compression'`)
	if got := query[string](t, url, `SHOW wal_compression`); lz4 != (got == "lz4") || got == "off" {
		t.Errorf("wal_compression = %q; the build has lz4: %v", got, lz4)
	}
	if _, version, _ := strings.Cut(query[string](t, url, `SELECT version()`), " "); !strings.HasPrefix(version, s.Binaries().Version) {
		t.Errorf("the server says it is %q, Binaries says %q", version, s.Binaries().Version)
	}
}

func TestSettingsRefused(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"a b": "c", "work_mem": "1\nfsync = off", "": "x"} {
		if s, err := Start(t.Context(), Options{Settings: map[string]string{name: value}}); err == nil {
			s.Stop(context.Background())
			t.Errorf("%q = %q was accepted", name, value)
		}
	}
	s, err := Start(t.Context(), Options{Settings: map[string]string{"work_mem": "nonsense"}})
	if err == nil {
		s.Stop(context.Background())
		t.Fatal("a value that PostgreSQL refuses was accepted")
	}
	if !strings.Contains(err.Error(), `invalid value for parameter "work_mem"`) {
		t.Errorf("the error does not say what PostgreSQL said: %v", err)
	}
}

func TestPasswordIsAsked(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	for _, user := range []string{"postgres", "postgres:wrong"} {
		conn, err := pgx.Connect(t.Context(), "postgres://"+user+"@"+s.Addr()+"/postgres?sslmode=disable")
		if err == nil {
			conn.Close(context.Background())
			t.Errorf("%s was let in", user)
		} else if !strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v", user, err)
		}
	}
	info, err := os.Stat(filepath.Join(s.place.dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the password file has mode %v", info.Mode())
	}
}

func TestTemporaryIsRemoved(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	pid, dir := s.PID(), s.place.dir
	if !alive(pid) {
		t.Fatalf("process %d does not live", pid)
	}
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if alive(pid) {
		t.Errorf("process %d still lives", pid)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a server that was stopped for good was restarted")
	}
	if s.PID() != 0 {
		t.Error("a stopped server has a process")
	}
}

func TestDataOutliveTheServer(t *testing.T) {
	t.Parallel()
	o := Options{Dir: newDir(t, true)}
	s := start(t, o)
	if want := filepath.Join(o.Dir, "pg", "data"); s.DataDir() != want {
		t.Errorf("the data are in %s, want %s", s.DataDir(), want)
	}
	url := s.URL("postgres")
	execute(t, url, `CREATE TABLE kept AS SELECT 42 AS n`)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := start(t, o)
	if again.URL("postgres") != url {
		t.Error("the second run has another URL")
	}
	if got := query[int](t, again.URL("postgres"), `SELECT n FROM kept`); got != 42 {
		t.Errorf("n = %d", got)
	}
	if log, err := os.ReadFile(again.LogFile()); err != nil || !strings.Contains(string(log), "database system was shut down") {
		t.Errorf("the log does not tell of an orderly stop: %v\n%s", err, log)
	}
}

func TestRestartAfterCrash(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	url := s.URL("postgres")
	execute(t, url, `CREATE TABLE kept AS SELECT 42 AS n`)
	for range 3 {
		pid := s.PID()
		if err := s.StopImmediate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if alive(pid) || s.PID() != 0 {
			t.Fatalf("process %d still lives", pid)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.URL("postgres") != url {
			t.Fatal("the URL has changed")
		}
		if got := query[int](t, url, `SELECT n FROM kept`); got != 42 {
			t.Fatalf("n = %d", got)
		}
	}
	log, err := os.ReadFile(s.LogFile())
	if err != nil || strings.Count(string(log), "was not properly shut down") != 3 {
		t.Errorf("the log does not tell of three crashes: %v\n%s", err, log)
	}
}

func TestRestartWhileRunning(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	before := s.PID()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.PID() == before || alive(before) {
		t.Errorf("process %d before, %d after", before, s.PID())
	}
	query[int](t, s.URL("postgres"), `SELECT 1`)
}

func TestStopCutShort(t *testing.T) {
	t.Parallel()
	o := Options{Dir: newDir(t, false)}
	s := start(t, o)
	execute(t, s.URL("postgres"), `CREATE TABLE kept AS SELECT 42 AS n`)
	pid := s.PID()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); err == nil {
		t.Error("a stop without time said that it was orderly")
	}
	if alive(pid) {
		t.Fatalf("process %d still lives", pid)
	}
	if got := query[int](t, start(t, o).URL("postgres"), `SELECT n FROM kept`); got != 42 {
		t.Errorf("n = %d", got)
	}
}

func TestStartCancelled(t *testing.T) {
	t.Parallel()
	o := Options{Dir: newDir(t, false)}
	ctx, cancel := context.WithTimeout(t.Context(), startPatience/1000)
	defer cancel()
	if s, err := Start(ctx, o); err == nil {
		s.Stop(context.Background())
		t.Fatal("initdb was faster than this test thinks possible")
	}
	start(t, o)
}

func TestTakenPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port

	if s, err := Start(t.Context(), Options{Port: taken}); err == nil {
		s.Stop(context.Background())
		t.Fatal("two servers on one port")
	} else if !strings.Contains(err.Error(), errPortTaken.Error()) {
		t.Errorf("the error does not name the cause: %v", err)
	}

	// The port that Start would choose first is taken.
	dir := newDir(t, true)
	first := choosePort(filepath.Join(dir, "pg"), 0)
	l2, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(first))
	if err != nil {
		t.Fatal(err)
	}
	defer l2.Close()
	s := start(t, Options{Dir: dir})
	if s.port == first {
		t.Fatal("two servers on one port")
	}
}

// A port can be taken after the choice. launch, which chose it, must see that from the server's end and choose again.
func TestPortTakenAfterTheChoice(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if err := s.StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := s.port
	if err := s.start(t.Context()); err == nil || !strings.Contains(err.Error(), errPortTaken.Error()) {
		t.Fatalf("started on a taken port: %v", err)
	}
	if err := s.launch(t.Context(), false, false); err != nil {
		t.Fatal(err)
	}
	if s.port == taken {
		t.Fatal("two servers on one port")
	}
	query[int](t, s.URL("postgres"), `SELECT 1`)

	// A restart keeps its port, and waits for it.
	if err := s.StopImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l2, err := net.Listen("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	url, restarted := s.URL("postgres"), make(chan error, 1)
	go func() { restarted <- s.Restart(t.Context()) }()
	eventually(t, startPatience, "an attempt that found the port taken", func() bool {
		log, _ := os.ReadFile(s.LogFile())
		return strings.Count(string(log), "could not create any TCP/IP sockets") >= 2
	})
	l2.Close()
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	if s.URL("postgres") != url {
		t.Error("the URL has changed")
	}
	query[int](t, url, `SELECT 1`)
}
