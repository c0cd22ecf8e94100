// Tests of how PostgreSQL is found and fetched.

package localpg

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// install makes a directory with programs that only say their version.
func install(t *testing.T, dir, version string, programs ...string) string {
	t.Helper()
	if len(programs) == 0 {
		programs = []string{"initdb", "postgres", "pg_ctl"}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Some Build)'\n"
		if err := os.WriteFile(filepath.Join(dir, p), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lookHere makes find look below a directory only, which is returned.
func lookHere(t *testing.T) string {
	t.Helper()
	root := filepath.Dir(newDir(t, true))
	places := usualPlaces
	t.Cleanup(func() { usualPlaces = places })
	usualPlaces = []string{filepath.Join(root, "lib", "postgresql", "*", "bin"), filepath.Join(root, "opt", "postgresql@*", "bin")}
	t.Setenv("TIDINGS_PG_BIN", "")
	t.Setenv("PATH", filepath.Join(root, "path"))
	t.Setenv("TMPDIR", t.TempDir()) // where the library that fetches leaves a file
	return root
}

func TestFindOrder(t *testing.T) {
	root := lookHere(t)
	expect := func(dir, version string, major int) {
		t.Helper()
		if b, err := Find(); err != nil || b != (Binaries{dir, version, major}) {
			t.Errorf("found %+v, %v; want %s", b, err, dir)
		}
	}
	install(t, filepath.Join(root, "opt", "postgresql@16", "bin"), "16.2")
	expect(filepath.Join(root, "opt", "postgresql@16", "bin"), "16.2", 16)

	// Of several versions in one place: the newest that is supported.
	install(t, filepath.Join(root, "lib", "postgresql", "9.6", "bin"), "9.6.24")
	install(t, filepath.Join(root, "lib", "postgresql", "14", "bin"), "14.9")
	install(t, filepath.Join(root, "lib", "postgresql", "17", "bin"), "17beta1")
	install(t, filepath.Join(root, "lib", "postgresql", "19", "bin"), "19.0")
	expect(filepath.Join(root, "lib", "postgresql", "17", "bin"), "17beta1", 17)

	// PATH, through a link into a directory with all programs; beside it there are not all.
	real := install(t, filepath.Join(root, "real"), "15.1")
	if err := os.Mkdir(filepath.Join(root, "path"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(real, "postgres"), filepath.Join(root, "path", "postgres")); err != nil {
		t.Fatal(err)
	}
	expect(real, "15.1", 15)

	// pg_config, which names a directory without a server first, and then one with.
	config := install(t, filepath.Join(root, "config"), "18.0", "initdb")
	script := "#!/bin/sh\necho " + config + "\n"
	if err := os.WriteFile(filepath.Join(root, "path", "pg_config"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(real, "15.1", 15)
	install(t, config, "18.0")
	expect(config, "18.0", 18)

	explicit := install(t, filepath.Join(root, "explicit"), "14.1")
	t.Setenv("TIDINGS_PG_BIN", explicit)
	expect(explicit, "14.1", 14)

	// For data of a version, only that version.
	t.Setenv("TIDINGS_PG_BIN", "")
	a, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := find(a, 16); err != nil || b.Major != 16 {
		t.Errorf("found %+v, %v; want version 16", b, err)
	}
}

func TestFindNothing(t *testing.T) {
	root := lookHere(t)
	old := install(t, filepath.Join(root, "lib", "postgresql", "13", "bin"), "13.1")
	a, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // nobody listens there any more
	_, err = findOrFetch(t.Context(), a, 0, source{server.URL, []string{filepath.Join(root, "cache")}})
	if err == nil {
		t.Fatal("found something")
	}
	for _, want := range []string{
		"14 to 18", `pg_config --bindir: exec: "pg_config"`, `PATH: exec: "postgres"`,
		old + ` is version "postgres (PostgreSQL) 13.1`, "postgresql@*/bin: nothing there",
		"fetch one: ", server.URL, "apt install postgresql", "set TIDINGS_PG_BIN",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}

	// A directory that was named must do: nothing else is tried.
	install(t, filepath.Join(root, "lib", "postgresql", "15", "bin"), "15.1")
	t.Setenv("TIDINGS_PG_BIN", filepath.Join(root, "nowhere"))
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "TIDINGS_PG_BIN: ") {
		t.Errorf("TIDINGS_PG_BIN names nothing, and the error is: %v", err)
	}
}

func TestFindUnrunnable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
	lookHere(t)
	t.Setenv("TIDINGS_PG_BIN", install(t, filepath.Join(newDir(t, false), "bin"), "15.1"))
	if b, err := Find(); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("found %+v, %v, which the server's account cannot run", b, err)
	}
}

// mavenRepository serves one archive: testdata/postgres.txz, made by
//
//	tar -c bin share | xz
//
// of three scripts in bin with mode 0700 (postgres says version 17.5), a link beside them, and a file with mode 0600.
func mavenRepository(t *testing.T, downloads *atomic.Int32) string {
	t.Helper()
	txz, err := os.ReadFile("testdata/postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	w, err := z.Create("postgres-any.txz")
	if err == nil {
		_, err = w.Write(txz)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch filepath.Ext(r.URL.Path) {
		case ".jar":
			downloads.Add(1)
			w.Write(jar.Bytes())
		case ".sha256":
			fmt.Fprint(w, hex.EncodeToString(sum[:]))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	return server.URL
}

func TestFetch(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // where the library leaves a file
	var downloads atomic.Int32
	src := source{mavenRepository(t, &downloads), []string{"/proc/nothing", filepath.Join(newDir(t, true), "cache")}}
	a, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			b, err := fetch(t.Context(), a, 0, src)
			want := Binaries{filepath.Join(src.caches[1], "postgres-17.5.0", "bin"), "17.5", 17}
			if err != nil || b != want {
				t.Errorf("fetched %+v, %v; want %+v", b, err, want)
			}
		})
	}
	wg.Wait()
	if n := downloads.Load(); n != 1 {
		t.Errorf("%d downloads for 4 starts", n)
	}
	var left []string
	err = filepath.WalkDir(src.caches[1], func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(src.caches[1], path)
		left = append(left, rel)
		if info, err := d.Info(); err != nil || d.Type() != fs.ModeSymlink && d.Name() != "lock" && info.Mode()&0o044 != 0o044 {
			t.Errorf("%s: mode %v, %v", rel, info.Mode(), err)
		}
		return nil
	})
	want := []string{".", "lock", "postgres-17.5.0", "postgres-17.5.0/bin", "postgres-17.5.0/bin/initdb", "postgres-17.5.0/bin/pg_ctl",
		"postgres-17.5.0/bin/postgres", "postgres-17.5.0/bin/postmaster", "postgres-17.5.0/share", "postgres-17.5.0/share/postgresql.conf.sample"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("the cache holds %q, %v; want %q", left, err, want)
	}
	if _, err := fetch(t.Context(), a, 13, src); err == nil {
		t.Error("fetched a version that is not supported")
	}
}

// A repository that does not answer must not hold up a Start that is given up.
func TestFetchGivenUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // where the library leaves a file
	asked, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	}))
	t.Cleanup(func() {
		close(release)
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	a, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		<-asked
		cancel()
	}()
	_, err = fetch(ctx, a, 0, source{server.URL, []string{filepath.Join(newDir(t, true), "cache")}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up with: %v", err)
	}
}

// Programs are not run from a directory where others can put some.
func TestCacheOfOthers(t *testing.T) {
	t.Parallel()
	a, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(newDir(t, true), "open")
	if err := os.MkdirAll(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(open), "link")
	if err := os.Symlink(filepath.Dir(open), link); err != nil {
		t.Fatal(err)
	}
	if dir, err := cacheDir(a, []string{open, link}); err == nil {
		t.Errorf("%s was taken", dir)
	}
}
