// The command backup: a dump of the schema and a manifest of what is in it.

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
)

type backupCmd struct {
	database
	asJSON
	To string `required:"" placeholder:"FILE" help:"The dump; FILE.json beside it says what is in it. Neither is overwritten."`
}

// manifest is what FILE.json says of the dump in FILE.
type manifest struct {
	Format   int            `json:"format"`
	SHA256   string         `json:"sha256"`
	Bytes    int64          `json:"bytes"`
	PgDump   string         `json:"pg_dump"` // its version
	Tidings  string         `json:"tidings"`
	Contents store.Contents `json:"contents"` // of the snapshot that was dumped
}

const manifestFormat = 1

func manifestOf(file string) string { return file + ".json" }

// rows is how many rows and tables there are.
func (m *manifest) rows() string {
	var n int64
	for _, rows := range m.Contents.Rows {
		n += rows
	}
	return fmt.Sprintf("%d rows in %s", n, count(len(m.Contents.Rows), "table"))
}

// Run counts the rows and dumps them in one snapshot.
func (c *backupCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	if err := c.vacant(); err != nil {
		return err
	}
	_, major, err := s.Vacant(e.ctx)
	if err != nil {
		return err
	}
	dump, err := localpg.FindClient("pg_dump", major, localpg.AnyMajor)
	if err != nil {
		return usageError{err}
	}
	if dump.Major > major {
		fmt.Fprintf(e.stderr, "warning: the server is PostgreSQL %d and pg_dump is %s: the dump can be restored into a server of version %d or later only; install the pg_dump of version %d\n",
			major, dump.Version, dump.Major, major)
	}
	m := manifest{Format: manifestFormat, PgDump: dump.Version, Tidings: server.Version()}
	err = s.Export(e.ctx, func(snapshot string, contents store.Contents) error {
		m.Contents = contents
		return c.write(e.ctx, dump, snapshot, &m)
	})
	if err != nil {
		return fmt.Errorf("back up to %s: %w", c.To, err)
	}
	return c.print(e, m, func() {
		fmt.Fprintf(e.stdout, "%s: %s as of %s, %d bytes; what is in it is in %s\n", c.To, m.rows(), when(m.Contents.At), m.Bytes, manifestOf(c.To))
		fmt.Fprintf(e.stdout, "restore it into an empty database: tidings restore --from %s --database-url URL\n", c.To)
	})
}

// vacant fails if there is a file already.
func (c *backupCmd) vacant() error {
	for _, file := range []string{c.To, manifestOf(c.To)} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return usageError{fmt.Errorf("back up to %s: there is something with that name, which is not overwritten", file)}
		}
	}
	return nil
}

// write makes both files under other names first. The dump gets its name last: when it is there, all of it is, and the manifest, too.
func (c *backupCmd) write(ctx context.Context, dump localpg.Client, snapshot string, m *manifest) (err error) {
	part, note := c.To+".partial", manifestOf(c.To)+".partial"
	// Whoever makes this file is alone: two backups to one name do not come into each other's way.
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("%s is there: another backup is under way, or was interrupted; then remove it", part)}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, removeIfThere(part), removeIfThere(note))
		}
	}()
	if err := c.vacant(); err != nil {
		return err
	}
	if err := dump.Run(ctx, c.URL, "--format=custom", "--snapshot="+snapshot, "--schema=tidings", "--no-publications", "--file="+part); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if m.SHA256, m.Bytes, err = digest(part); err != nil {
		return err
	}
	if err := m.save(note); err != nil {
		return err
	}
	if err := os.Rename(note, manifestOf(c.To)); err != nil {
		return err
	}
	if err := os.Rename(part, c.To); err != nil {
		return errors.Join(err, os.Remove(manifestOf(c.To)))
	}
	return syncDir(filepath.Dir(c.To))
}

func (m *manifest) save(file string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

func removeIfThere(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// digest is the SHA-256 of a file, in hexadecimal digits, and its length.
func digest(file string) (sum string, n int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
