// Where the data lie, and who else uses them.

package localpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// place is the directory of one server. It belongs to the server's account alone and holds
//
//	data/       the data directory
//	password    the password of the role postgres
//	lock        locked by the process that started the server and by every process of the server
//
// For Options.Dir it is Dir/pg; or, where the account cannot reach that, a directory elsewhere to which Dir/pg is a link.
type place struct {
	dir       string
	log       string   // the file that the server logs to
	lock      *os.File // held from openPlace to close
	temporary bool
}

const (
	logName     = "postgres.log"
	asideSuffix = ".1" // of a log that had become long

	lockPatience = 30 * time.Second // for a server whose owner has ended
)

// openPlace makes or finds the place for the server of dir ("" for a temporary one) and locks it.
func openPlace(ctx context.Context, a account, dir string) (*place, error) {
	p := &place{}
	if dir == "" {
		made, err := makeElsewhere(a, "tidings-pg-", os.TempDir(), "/var/tmp", "/tmp")
		if err != nil {
			return nil, fmt.Errorf("make a temporary directory for PostgreSQL: %w", err)
		}
		p.dir, p.log, p.temporary = made, filepath.Join(made, logName), true
	} else {
		found, err := persistent(a, dir)
		if err != nil {
			return nil, fmt.Errorf("prepare %s for PostgreSQL: %w", dir, err)
		}
		p.dir, p.log = found, filepath.Join(dir, logName)
	}
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	if err := a.try(p.dir); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// persistent returns the place that belongs to dir, and makes it if there is none.
func persistent(a account, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Two first starts at once must agree on one place.
	d, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	path := filepath.Join(dir, "pg")
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode().Type() == fs.ModeSymlink:
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", fmt.Errorf("the data were kept where %s points, which cannot be reached (remove the link to begin with an empty database): %w", path, err)
		}
		return target, nil
	case err == nil:
		return path, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", err
	}
	here := a.own(path)
	if here == nil {
		return path, nil
	}
	if err := os.Remove(path); err != nil {
		return "", err
	}
	elsewhere, err := makeElsewhere(a, "tidings-"+filepath.Base(filepath.Dir(dir))+"-", "/var/tmp", os.TempDir())
	if err != nil {
		return "", errors.Join(here, err)
	}
	if err := os.Symlink(elsewhere, path); err != nil {
		return "", errors.Join(err, os.Remove(elsewhere))
	}
	return elsewhere, nil
}

// makeElsewhere makes a new directory in the first of parents that allows it. The account itself makes it, so that the
// supervisor can remove it as well. Its name ends at random, so that nobody can have prepared it.
func makeElsewhere(a account, prefix string, parents ...string) (string, error) {
	var errs []error
	for _, parent := range parents {
		dir, err := filepath.Abs(filepath.Join(parent, prefix+strings.ToLower(rand.Text()[:12])))
		if err == nil {
			err = a.sh(`mkdir -m 700 "$1"`, dir)
		}
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// acquire locks the place. The lock belongs to the open file, which the server's processes inherit: it is free exactly
// when the process that started the server and all processes of the server have ended. While only the former has
// ended, the server is about to end, too, and acquire waits for that.
func (p *place) acquire(ctx context.Context) error {
	// The directory belongs to the account: a link that it may have put there is not followed.
	f, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("lock the data of PostgreSQL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		owner, server := readPid(f.Name()), readPid(p.pidFile())
		if alive(owner) {
			return errors.Join(fmt.Errorf("the data in %s are in use: process %d runs a PostgreSQL server (process %d) on them", p.dir, owner, server), f.Close())
		}
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("the data in %s are in use by PostgreSQL (process %d), whose owner (process %d) has ended", p.dir, server, owner), f.Close())
		}
		pause(ctx, 20*time.Millisecond)
	}
	p.lock = f
	_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	if err == nil {
		err = p.clearStalePid()
	}
	if err != nil {
		return errors.Join(err, p.close())
	}
	return nil
}

// clearStalePid removes the pid file of a server that was killed. PostgreSQL itself would do so only if no process of
// the same user has got that pid since.
func (p *place) clearStalePid() error {
	pid := readPid(p.pidFile())
	// A server that somebody started by hand does not hold the lock. (Where there is no /proc, PostgreSQL still refuses
	// to start beside it: the shared memory is found by the inode of the data directory.)
	cwd, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	data, err2 := os.Stat(p.data())
	if err == nil && err2 == nil && os.SameFile(cwd, data) {
		return fmt.Errorf("the data in %s are in use by a PostgreSQL server (process %d) that was started by hand: %w", p.dir, pid, errLingering)
	}
	if err := os.Remove(p.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Remove removes the data and the log that servers with this Options.Dir have left; whatever else is in dir stays. It
// fails while a server runs on them.
func Remove(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "pg")
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		p := &place{dir: target}
		if err := p.acquire(ctx); err != nil {
			return err
		}
		defer p.close()
		err = os.RemoveAll(target)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the data of PostgreSQL: %w", err)
	}
	for _, path := range []string{path, filepath.Join(dir, logName), filepath.Join(dir, logName+asideSuffix)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what PostgreSQL left: %w", err)
		}
	}
	return nil
}

// close gives the place free, and removes it if it is temporary.
func (p *place) close() error {
	var err error
	if p.temporary {
		err = os.RemoveAll(p.dir)
	}
	return errors.Join(err, p.lock.Close())
}

func (p *place) data() string    { return filepath.Join(p.dir, "data") }
func (p *place) pidFile() string { return filepath.Join(p.dir, "data", "postmaster.pid") }

// major is the version that the data were made by, or 0 if there are none yet.
func (p *place) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return versionIn(string(text)), nil
}

// secret returns the password of the role postgres, and makes one before initdb needs it.
func (p *place) secret(a account, fresh bool) (string, error) {
	path := filepath.Join(p.dir, "password")
	if !fresh {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	if err := os.RemoveAll(path); err != nil { // left by an initdb that was interrupted
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	password := rand.Text()
	_, err = f.WriteString(password)
	if a.switched {
		err = errors.Join(err, f.Chown(a.uid, a.gid))
	}
	return password, errors.Join(err, f.Close())
}

// readPid returns the number in the first line of a file, or 0.
func readPid(path string) int {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
