// Finds and runs the client programs of PostgreSQL: pg_dump, pg_restore.

package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgconn"
)

// Client is a client program of PostgreSQL.
type Client struct {
	Path    string
	Version string // as `PROGRAM --version` gives it, for example 15.18
	Major   int
}

// FindClient looks on this machine for a client program whose major version is least to most, and takes the lowest of them. It looks into
// the directory in TIDINGS_PG_BIN, if that is set, and otherwise where Find does. The error names what was found instead.
func FindClient(name string, least, most int) (Client, error) {
	var dirs []string
	if dir := os.Getenv("TIDINGS_PG_BIN"); dir != "" {
		dirs = []string{dir}
	} else {
		for _, pattern := range usualPlaces {
			found, _ := filepath.Glob(pattern) // the patterns are well-formed
			dirs = append(dirs, found...)
		}
		if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
		dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	}
	var best Client
	var others []string
	for _, dir := range dirs {
		c, err := examineClient(filepath.Join(dir, name), name)
		switch {
		case err != nil:
		case c.Major < least || c.Major > most:
			others = append(others, fmt.Sprintf("%s is %s", c.Path, c.Version))
		case best.Path == "" || c.Major < best.Major:
			best = c
		}
	}
	if best.Path != "" {
		return best, nil
	}
	wanted := fmt.Sprintf("%d to %d", least, most)
	switch {
	case least == most:
		wanted = strconv.Itoa(least)
	case most == AnyMajor:
		wanted = fmt.Sprintf("%d or later", least)
	}
	if slices.Sort(others); len(others) == 0 {
		others = []string{"there is none"}
	}
	return Client{}, fmt.Errorf("find %s of PostgreSQL %s: %s (Debian: apt install postgresql-client-%d; or set TIDINGS_PG_BIN to the directory that has it)",
		name, wanted, strings.Join(slices.Compact(others), ", "), least)
}

// AnyMajor is no upper bound of a major version.
const AnyMajor = 1 << 20

func examineClient(path, name string) (Client, error) {
	path, err := exec.LookPath(path)
	if err != nil {
		return Client{}, err
	}
	out, err := exec.Command(path, "--version").Output()
	fields := strings.Fields(string(out)) // pg_dump (PostgreSQL) 15.18 (Debian …)
	if err != nil || len(fields) < 3 || fields[0] != name {
		return Client{}, fmt.Errorf("%s --version says %q: %w", path, out, err)
	}
	return Client{Path: path, Version: fields[2], Major: versionIn(fields[2])}, nil
}

// Run runs the program on the database of a connection string, whose password is not on the command line, which everybody on the machine
// can read. When ctx ends, the program is asked to end. The error repeats what the program says of itself, without the details,
// which may hold a row.
func (c Client) Run(ctx context.Context, connection string, arg ...string) error {
	shown, password, err := withoutPassword(connection)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Path, append([]string{"--no-password", "--dbname=" + shown}, arg...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	if password != "" {
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	}
	if err := cmd.Run(); err != nil {
		name := filepath.Base(c.Path)
		var lines []string
		for line := range strings.Lines(said.String()) {
			if strings.HasPrefix(line, name+": ") && !strings.HasPrefix(line, name+": detail") {
				lines = append(lines, seen(strings.TrimSpace(line)))
			}
		}
		return fmt.Errorf("run %s %s: %w: %s", name, c.Version, err, strings.Join(lines, "; "))
	}
	return nil
}

// seen replaces what cannot be seen: a program repeats names that are in a dump, and a terminal would obey them.
func seen(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, line)
}

// notForClients matches the names of settings of a connection string that are secret, or that only our own connections understand.
var notForClients = regexp.MustCompile(`(?i)^\s*(password|sslpassword|pool_.*|default_query_exec_mode|statement_cache_capacity|description_cache_capacity)\s*$`)

// keywordValue is one setting of a connection string that is no URL.
var keywordValue = regexp.MustCompile(`(\w+)\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// withoutPassword takes the password out of a connection string, and what the programs of PostgreSQL would not understand. They read a
// password that is not in it as we do, from the environment or a file.
func withoutPassword(connection string) (shown, password string, err error) {
	scheme, rest, isURL := strings.Cut(connection, "://")
	if !isURL {
		var kept []string
		for _, m := range keywordValue.FindAllStringSubmatch(connection, -1) {
			if !notForClients.MatchString(m[1]) {
				kept = append(kept, m[0])
			}
		}
		shown = strings.Join(kept, " ")
	} else {
		// By hand, because a list of hosts is no URL to net/url.
		end := len(rest)
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			end = i
		}
		authority, path := rest[:end], rest[end:]
		if at := strings.LastIndex(authority, "@"); at >= 0 {
			user, _, _ := strings.Cut(authority[:at], ":")
			authority = user + authority[at:]
		}
		path, query, _ := strings.Cut(path, "?")
		shown = scheme + "://" + authority + path
		var settings []string
		for setting := range strings.SplitSeq(query, "&") {
			// A name can be written in percents, too.
			escaped, _, _ := strings.Cut(setting, "=")
			name, err := url.PathUnescape(escaped)
			if err != nil {
				return "", "", errors.New("read the database URL: a setting in it has a name that is badly escaped")
			}
			if name != "" && !notForClients.MatchString(name) {
				settings = append(settings, setting)
			}
		}
		if len(settings) > 0 {
			shown += "?" + strings.Join(settings, "&")
		}
	}
	// What is given by the environment or a file would be the same in both.
	given, err := pgconn.ParseConfig(connection)
	if err != nil {
		return "", "", fmt.Errorf("read the database URL: %w", err)
	}
	return shown, given.Password, nil
}
