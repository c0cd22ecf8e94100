// Finds PostgreSQL on this machine.

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The major versions that Tidings supports.
const (
	MinMajor = 14
	MaxMajor = 18
)

// Binaries are the server programs of one PostgreSQL installation.
type Binaries struct {
	Dir     string // absolute directory with initdb, postgres and pg_ctl
	Version string // as `postgres --version` gives it, for example 15.18
	Major   int    // for example 15
}

// Find looks for the server programs of a supported PostgreSQL on this machine, in this order: the directory in
// TIDINGS_PG_BIN (which, when set, must do), `pg_config --bindir`, PATH, and the usual places of Debian, Red Hat,
// Homebrew and Postgres.app, newest version first. The error lists each place and why it did not do.
func Find() (Binaries, error) {
	a, err := serverAccount()
	if err != nil {
		return Binaries{}, err
	}
	return find(a, 0)
}

// usualPlaces are patterns of server directories, newest version first within each.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // Red Hat, packages of postgresql.org
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on ARM
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

// find is Find for a given account and, when major is not 0, for that version only: a data directory can be served by
// the version alone that made it.
func find(a account, major int) (Binaries, error) {
	var rejected []error
	try := func(from, dir string) (Binaries, bool) {
		b, err := examine(a, dir)
		if err == nil && major != 0 && b.Major != major {
			err = fmt.Errorf("%s is version %s, and the data need version %d", dir, b.Version, major)
		}
		if err != nil {
			rejected = append(rejected, fmt.Errorf("%s: %w", from, err))
			return Binaries{}, false
		}
		return b, true
	}
	if dir := os.Getenv("TIDINGS_PG_BIN"); dir != "" {
		if b, ok := try("TIDINGS_PG_BIN", dir); ok {
			return b, nil
		}
		return Binaries{}, &notFoundError{explicit: true, rejected: rejected}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err != nil {
		rejected = append(rejected, fmt.Errorf("pg_config --bindir: %w", err))
	} else if b, ok := try("pg_config --bindir", strings.TrimSpace(string(out))); ok {
		return b, nil
	}
	if path, err := exec.LookPath("postgres"); err != nil {
		rejected = append(rejected, fmt.Errorf("PATH: %w", err))
	} else if b, ok := try("PATH", filepath.Dir(path)); ok {
		return b, nil
	}
	for _, pattern := range usualPlaces {
		dirs, err := filepath.Glob(pattern)
		if err != nil || len(dirs) == 0 {
			rejected = append(rejected, fmt.Errorf("%s: nothing there", pattern))
			continue
		}
		slices.SortFunc(dirs, func(x, y string) int { return versionIn(y) - versionIn(x) })
		for _, dir := range dirs {
			if b, ok := try(pattern, dir); ok {
				return b, nil
			}
		}
	}
	return Binaries{}, &notFoundError{rejected: rejected}
}

// notFoundError says where server programs were looked for, and why none of them did.
type notFoundError struct {
	explicit bool // TIDINGS_PG_BIN named the only place that counts
	rejected []error
}

func (e *notFoundError) Error() string {
	return fmt.Sprintf("find a PostgreSQL server (version %d to %d, with initdb, postgres and pg_ctl):\n%v", MinMajor, MaxMajor, errors.Join(e.rejected...))
}

// versionIn returns the first number in the last two elements of dir, or 0.
func versionIn(dir string) int {
	s := filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
	digit := func(r rune) bool { return '0' <= r && r <= '9' }
	start := strings.IndexFunc(s, digit)
	if start < 0 {
		return 0
	}
	s = s[start:]
	if end := strings.IndexFunc(s, func(r rune) bool { return !digit(r) }); end >= 0 {
		s = s[:end]
	}
	n, _ := strconv.Atoi(s)
	return n
}

// examine decides whether dir holds the programs of a supported version, which the account can run.
func examine(a account, dir string) (Binaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, err
	}
	// A link in a PATH directory leads to a directory with all of them.
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
		dir = filepath.Dir(real)
	}
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return Binaries{}, err
		}
	}
	out, err := a.command(filepath.Join(dir, "postgres"), "--version").CombinedOutput()
	if err != nil {
		return Binaries{}, fmt.Errorf("run %s/postgres --version as %s: %w: %s", dir, a, err, strings.TrimSpace(string(out)))
	}
	b := Binaries{Dir: dir}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(fields) >= 3 {
		b.Version = fields[2]
		b.Major = versionIn(b.Version)
	}
	if b.Major < MinMajor || b.Major > MaxMajor {
		return Binaries{}, fmt.Errorf("%s is version %q", dir, strings.TrimSpace(string(out)))
	}
	return b, nil
}
