// The command restore: a backup into an empty database, and what it has to pass before it can be used.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/schema"
)

type restoreCmd struct {
	database
	asJSON
	From string `required:"" placeholder:"FILE" help:"What backup has written; FILE.json has to lie beside it."`
}

// restored is what came of it.
type restored struct {
	Manifest manifest        `json:"manifest"`
	Differ   []string        `json:"differ"` // tables that have not the rows of the manifest
	Verified bool            `json:"verified"`
	Findings []store.Finding `json:"findings,omitempty"`
	Usable   bool            `json:"usable"` // after `tidings recover`
}

// Run puts a backup back and looks at the copy. It changes nothing unless the whole of it is restored.
func (c *restoreCmd) Run(e *env) error {
	m, err := c.read()
	if err != nil {
		return fmt.Errorf("restore %s: %w", c.From, err)
	}
	s, err := server.OpenStore(c.URL, 4)
	if err != nil {
		return err
	}
	defer s.Pool().Close()
	if err := c.fill(e, s, m); err != nil {
		return err
	}
	r := restored{Manifest: *m}
	copied, err := s.Contents(e.ctx)
	if err != nil {
		return err
	}
	r.Differ = differ(m.Contents.Rows, copied.Rows)
	outdated := schema.Check(e.ctx, c.URL)
	if len(r.Differ) == 0 && outdated == nil {
		if err := s.Analyze(e.ctx); err != nil {
			return err
		}
		if r.Findings, err = s.Verify(e.ctx); err != nil {
			return err
		}
		r.Verified = true
		r.Usable = store.Violations(r.Findings) == 0
	}
	if err := c.print(e, r, func() { c.tell(e, &r, outdated) }); err != nil {
		return err
	}
	if !r.Usable {
		return errNo
	}
	return nil
}

// read reads the manifest and compares it with the dump.
func (c *restoreCmd) read() (*manifest, error) {
	text, err := os.ReadFile(manifestOf(c.From))
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read the manifest %s: %w", manifestOf(c.From), err)
	}
	if m.Format != manifestFormat || m.SHA256 == "" || m.pgDump() == 0 || m.Contents.Major == 0 || len(m.Contents.Rows) == 0 {
		return nil, fmt.Errorf("read the manifest %s: it is not one of `tidings backup`, or of another release", manifestOf(c.From))
	}
	sum, n, err := digest(c.From)
	if err != nil {
		return nil, err
	}
	if sum != m.SHA256 || n != m.Bytes {
		return nil, fmt.Errorf("the dump is not the one of its manifest: it has %d bytes and the SHA-256 %s, not %d bytes and %s", n, sum, m.Bytes, plain(m.SHA256))
	}
	return &m, nil
}

// fill runs pg_restore, in one transaction.
func (c *restoreCmd) fill(e *env, s *store.Store, m *manifest) error {
	vacant, major, err := s.Vacant(e.ctx)
	if err != nil {
		return err
	}
	if !vacant {
		return usageError{errors.New("restore: the database has a schema tidings already: create an empty database for the copy, and point your processes at that")}
	}
	made := m.pgDump()
	if major < max(m.Contents.Major, made) {
		return usageError{fmt.Errorf("restore: the dump is of PostgreSQL %d, made by pg_dump %s, and the server is older: %d", m.Contents.Major, plain(m.PgDump), major)}
	}
	// One that is older than pg_dump cannot read the dump, one that is newer than the server makes settings that the server does not know.
	program, err := localpg.FindClient("pg_restore", made, major)
	if err != nil {
		return usageError{err}
	}
	if err := program.Run(e.ctx, c.URL, "--exit-on-error", "--single-transaction", "--no-owner", c.From); err != nil {
		return fmt.Errorf("restore %s: nothing was restored: %w", c.From, err)
	}
	return nil
}

// pgDump is the major version of the pg_dump that made the dump.
func (m *manifest) pgDump() (major int) {
	_, _ = fmt.Sscanf(m.PgDump, "%d", &major)
	return major
}

// differ names the tables that are not the same in both.
func differ(want, got map[string]int64) (all []string) {
	for _, table := range slices.Sorted(maps.Keys(want)) {
		if n, ok := got[table]; !ok || n != want[table] {
			all = append(all, fmt.Sprintf("%s has %d rows, not %d", plain(table), n, want[table]))
		}
	}
	for _, table := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[table]; !ok {
			all = append(all, fmt.Sprintf("%s is not in the manifest", plain(table)))
		}
	}
	return all
}

func (c *restoreCmd) tell(e *env, r *restored, outdated error) {
	m := &r.Manifest
	if len(r.Differ) > 0 {
		fmt.Fprintln(e.stdout, "Do not use this copy: it is not what was backed up.")
		for _, line := range r.Differ {
			fmt.Fprintln(e.stdout, "  "+line)
		}
		return
	}
	fmt.Fprintf(e.stdout, "restored %s as of %s, as in the manifest\n", m.rows(), when(m.Contents.At))
	if !r.Verified {
		fmt.Fprintf(e.stdout, "It is not known yet whether the copy can be used: %v. Then `tidings verify`, and go on with `tidings recover`.\n", outdated)
		return
	}
	if !r.Usable {
		showFindings(e, r.Findings)
		fmt.Fprintf(e.stdout, "\nDo not use this copy: %s\n", verified(r.Findings))
		return
	}
	fmt.Fprintln(e.stdout, verified(r.Findings))
	dir := "DIRECTORY"
	if set := os.Getenv("TIDINGS_OUTSIDE_DIR"); set != "" {
		dir = quoted(set)
	}
	fmt.Fprintf(e.stdout, `
The copy can be used after a recovery; until then no process serves it. What was committed after the backup is not in it. Stop every process
(gateways, API, workers), note the time, and then:
  tidings recover --lost-since %s --stopped-at TIME --database-url %s --outside-dir %s
TIME is when the last process stopped that served what was lost. The directory is the servers': the journal is in it. Then give every process the
new --database-url, and start them.
`, m.Contents.At.UTC().Format("2006-01-02T15:04:05Z"), shown(c.URL), dir)
}

// quoted is a word of a shell's command line.
func quoted(word string) string { return "'" + strings.ReplaceAll(plain(word), "'", `'\''`) + "'" }

// shown is a connection string for a command line: a password does not belong there, see PGPASSWORD.
func shown(connection string) string {
	u, err := url.Parse(connection)
	if err != nil || u.Host == "" && u.Path == "" || !strings.HasPrefix(u.Scheme, "postgres") {
		return `"$TIDINGS_DATABASE_URL"` // of another form
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	if q := u.Query(); q.Has("password") || q.Has("sslpassword") {
		q.Del("password")
		q.Del("sslpassword")
		u.RawQuery = q.Encode()
	}
	return quoted(u.String())
}
