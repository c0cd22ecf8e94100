// Fetches PostgreSQL where none is installed.

package localpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// source says where programs are fetched from and where they are kept.
type source struct {
	repository string   // a Maven repository with the builds of github.com/zonkyio/embedded-postgres-binaries
	caches     []string // directories, of which the first that can be used is
}

func defaultSource(a account) source {
	s := source{repository: "https://repo1.maven.org/maven2"}
	if a.switched {
		s.caches = append(s.caches, "/var/cache/tidings") // root's home is closed to the account
	} else if dir, err := os.UserCacheDir(); err == nil {
		s.caches = append(s.caches, filepath.Join(dir, "tidings"))
	}
	s.caches = append(s.caches, filepath.Join(os.TempDir(), "tidings-cache-"+strconv.Itoa(os.Geteuid())))
	return s
}

// fetchable are the versions to fetch, by major version; 0 is the one for new data.
var fetchable = map[int]embedded.PostgresVersion{
	0:  embedded.V17,
	14: embedded.V14,
	15: embedded.V15,
	16: embedded.V16,
	17: embedded.V17,
	18: embedded.V18,
}

const remedy = "install PostgreSQL (Debian: apt install postgresql; macOS: brew install postgresql@17), or set TIDINGS_PG_BIN to a directory with initdb, postgres and pg_ctl"

// findOrFetch finds the programs, or fetches them into a cache.
func findOrFetch(ctx context.Context, a account, major int, src source) (Binaries, error) {
	b, err := find(a, major)
	var none *notFoundError
	if !errors.As(err, &none) {
		return b, err
	}
	if !none.explicit {
		var fetchErr error
		if b, fetchErr = fetch(ctx, a, major, src); fetchErr == nil {
			return b, nil
		}
		err = fmt.Errorf("%w\nfetch one: %w", err, fetchErr)
	}
	return Binaries{}, fmt.Errorf("%w\n%s", err, remedy)
}

// fetch returns the programs from the cache, and puts them there if need be.
func fetch(ctx context.Context, a account, major int, src source) (Binaries, error) {
	version, ok := fetchable[major]
	if !ok {
		return Binaries{}, fmt.Errorf("there is nothing to fetch for version %d", major)
	}
	cache, err := cacheDir(a, src.caches)
	if err != nil {
		return Binaries{}, fmt.Errorf("find a directory for a cache: %w", err)
	}
	dir := filepath.Join(cache, "postgres-"+string(version))
	if b, err := examine(a, filepath.Join(dir, "bin")); err == nil {
		return b, nil
	}
	unlock, err := lockCache(ctx, cache)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if b, err := examine(a, filepath.Join(dir, "bin")); err == nil {
		return b, nil // somebody else fetched it meanwhile
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return Binaries{}, err
	}
	defer os.RemoveAll(tmp)
	if err := download(ctx, tmp, version, src.repository); err != nil {
		return Binaries{}, fmt.Errorf("PostgreSQL %s from %s: %w", version, src.repository, err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(filepath.Join(tmp, "programs"), dir)); err != nil {
		return Binaries{}, err
	}
	return examine(a, filepath.Join(dir, "bin"))
}

// download puts the programs into dir/programs, readable for everybody. The library offers no download by itself, only
// the start of a server after it. Here the start fails before initdb, because the data directory would lie in a file;
// whether the download went well is seen from the programs.
func download(ctx context.Context, dir string, version embedded.PostgresVersion, repository string) error {
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	programs := filepath.Join(dir, "programs")
	started := make(chan error, 1)
	// The library knows no context. When ctx ends first, this goroutine is left to end with its HTTP request.
	go func() {
		started <- embedded.NewDatabase(embedded.DefaultConfig().
			Version(version).
			BinaryRepositoryURL(repository).
			CachePath(filepath.Join(dir, "archive")).
			RuntimePath(filepath.Join(dir, "run")).
			BinariesPath(programs).
			DataPath(filepath.Join(file, "data")).
			Port(uint32(choosePort(dir, 1))).
			Password(rand.Text()).
			Logger(io.Discard)).Start()
	}()
	var err error
	select {
	case err = <-started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, statErr := os.Stat(filepath.Join(programs, "bin", "pg_ctl")); statErr != nil {
		return err
	}
	return filepath.WalkDir(programs, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() == fs.ModeSymlink {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}

// cacheDir returns the first of dirs that belongs to the user of this process and where the account can run programs. The
// home directory may be missing, read-only, or closed to the account.
func cacheDir(a account, dirs []string) (string, error) {
	var errs []error
	for _, dir := range dirs {
		err := cacheUsable(a, dir)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func cacheUsable(a account, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	// Programs are run from here: nobody else may have put them there.
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that this user alone can write to", dir)
	}
	probe, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return err
	}
	defer os.Remove(probe)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(probe, 0o755)); err != nil {
		return err
	}
	return a.sh(`cd "$1"`, probe)
}

// lockCache waits for its turn to fetch.
func lockCache(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), ctx.Err(), f.Close())
		}
		pause(ctx, 100*time.Millisecond)
	}
}
