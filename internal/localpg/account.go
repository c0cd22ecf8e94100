// The account that PostgreSQL runs under when we are root.

package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is the system user that runs the server. The zero account is the user of this process.
type account struct {
	name     string
	uid, gid int
	switched bool // root runs the server as this user
}

// serverAccount decides who runs the server. PostgreSQL refuses to run as root, so root chooses somebody else:
// TIDINGS_PG_USER, or the first of postgres and nobody as whom a program can really be started (a user namespace may
// know a name without mapping its number).
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	names := []string{"postgres", "nobody"}
	if name := os.Getenv("TIDINGS_PG_USER"); name != "" {
		names = []string{name}
	}
	var errs []error
	for _, name := range names {
		a, err := lookup(name)
		if err == nil {
			err = a.sh(":", "")
		}
		if err == nil {
			return a, nil
		}
		errs = append(errs, fmt.Errorf("user %s: %w", name, err))
	}
	return account{}, fmt.Errorf("find a user to run PostgreSQL as, which refuses to run as root (set TIDINGS_PG_USER): %w", errors.Join(errs...))
}

func lookup(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("parse uid %q: %w", u.Uid, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("parse gid %q: %w", u.Gid, err)
	}
	if uid == 0 {
		return account{}, errors.New("is root")
	}
	return account{name: name, uid: uid, gid: gid, switched: true}, nil
}

func (a account) String() string {
	if a.name == "" {
		return "user " + strconv.Itoa(a.uid)
	}
	return "user " + a.name
}

// command prepares a program to run as the account, in a session of its own: a Ctrl-C at the terminal goes to the whole
// foreground process group, and the server must outlive it until it is stopped in order. The working directory is /,
// which everybody can enter, and of the environment only what finds programs and libraries is kept: PGDATA, PGOPTIONS
// or a translated message would change what the server does and says.
func (a account) command(name string, arg ...string) *exec.Cmd {
	cmd := exec.Command(name, arg...)
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"}
	for _, kv := range os.Environ() {
		switch key, _, _ := strings.Cut(kv, "="); key {
		case "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH":
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// sh runs a line of shell as the account, with $1 set to arg.
func (a account) sh(line, arg string) error {
	out, err := a.command("/bin/sh", "-c", line, "sh", arg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("as %s: %s (%w)", a, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// try finds out whether the account can enter dir and write there: a folder above may be closed to it.
func (a account) try(dir string) error {
	if err := a.sh(`cd "$1" && : >probe && rm probe`, dir); err != nil {
		return fmt.Errorf("use %s %w", dir, err)
	}
	return nil
}

// own makes dir a directory of the account alone. Some file systems take chown and chmod without doing it.
func (a account) own(dir string) error {
	if a.switched {
		if err := os.Lchown(dir, a.uid, a.gid); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != a.uid || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("%s cannot be made a private directory of %s", dir, a)
	}
	return a.try(dir)
}
