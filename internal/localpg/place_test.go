// Tests of where the data lie.

package localpg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A clone in a folder that the account cannot enter, as under /root.
func TestUnreachableDir(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
	o := Options{Dir: newDir(t, false)}
	s := start(t, o)
	place := s.place.dir
	if strings.HasPrefix(place, o.Dir) {
		t.Fatalf("the data are in %s, and the directory was reachable", place)
	}
	info, err := os.Stat(place)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid == 0 || info.Mode().Perm() != 0o700 {
		t.Errorf("%s belongs to user %d and has mode %v", place, st.Uid, info.Mode())
	}
	execute(t, s.URL("postgres"), `CREATE TABLE kept AS SELECT 42 AS n`)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := start(t, o)
	if again.place.dir != place {
		t.Errorf("the second run has its data in %s, the first had them in %s", again.place.dir, place)
	}
	if got := query[int](t, again.URL("postgres"), `SELECT n FROM kept`); got != 42 {
		t.Errorf("n = %d", got)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), o.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(place); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", place, err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 0 {
		t.Errorf("left in %s: %v, %v", o.Dir, left, err)
	}
	if err := Remove(t.Context(), o.Dir); err != nil {
		t.Errorf("a second Remove: %v", err)
	}
}

// The server and its supervisor have no right of root.
func TestRootIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this process is not root")
	}
	s := start(t, Options{})
	for _, pid := range []int{s.PID(), s.run.cmd.Process.Pid} {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			fields := strings.Fields(line)
			switch fields[0] {
			case "Uid:", "Gid:", "Groups:":
				for _, id := range fields[1:] {
					if id == "0" {
						t.Errorf("process %d: %s", pid, line)
					}
				}
			}
		}
	}
	t.Setenv("TIDINGS_PG_USER", "root")
	if _, err := serverAccount(); err == nil || !strings.Contains(err.Error(), "TIDINGS_PG_USER") {
		t.Errorf("root runs the server as root: %v", err)
	}
	t.Setenv("TIDINGS_PG_USER", "nobody")
	if s := start(t, Options{}); s.account.name != "nobody" {
		t.Errorf("the server runs as %v", s.account)
	}
}

func TestOtherVersion(t *testing.T) {
	t.Parallel()
	o := Options{Dir: newDir(t, false)}
	s := start(t, o)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(s.DataDir(), "PG_VERSION")
	if err := os.WriteFile(version, []byte("13\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the data need version 13") {
		t.Errorf("started on data of another version: %v", err)
	}
}

func TestLostPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/nonexistent/place", filepath.Join(dir, "pg")); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "remove the link") {
		t.Errorf("started on data that are gone: %v", err)
	}
	if err := Remove(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "pg")); !os.IsNotExist(err) {
		t.Errorf("the link is still there: %v", err)
	}
}

func TestLongLogIsPutAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ size, from int64 }{{1 << 20, 1 << 20}, {17 << 20, 0}} {
		if err := os.Truncate(path, c.size); err != nil {
			t.Fatal(err)
		}
		f, from, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if from != c.from {
			t.Errorf("a log of %d bytes is continued at %d, want %d", c.size, from, c.from)
		}
	}
	if info, err := os.Stat(path + asideSuffix); err != nil || info.Size() != 17<<20 {
		t.Errorf("the long log is not aside: %v, %v", info, err)
	}
}
