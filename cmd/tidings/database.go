// Commands that work on the database itself: the connection flag, migrate, purge.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/schema"
)

// database is the flag of the commands that work on the database itself.
type database struct {
	URL string `name:"database-url" env:"TIDINGS_DATABASE_URL" required:"" placeholder:"URL" help:"PostgreSQL connection string."`
}

// open checks the schema and opens a store. close it.
func (d database) open(e *env) (s *store.Store, close func(), err error) {
	return d.check(e, func() (*store.Store, error) { return server.OpenStore(d.URL, 4) })
}

// openServed is open for what servers do, too: a database that lost something, by its lineage's row or the witness in dir, is refused.
func (d database) openServed(e *env, dir string) (s *store.Store, close func(), err error) {
	return d.check(e, func() (*store.Store, error) {
		m, err := store.NewLineageMemory(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		return server.OpenServedStore(d.URL, 4, m)
	})
}

func (d database) check(e *env, open func() (*store.Store, error)) (s *store.Store, close func(), err error) {
	if s, err = open(); err != nil {
		return nil, nil, err
	}
	if err := schema.Check(e.ctx, d.URL); err != nil {
		s.Pool().Close()
		return nil, nil, err
	}
	return s, s.Pool().Close, nil
}

// asJSON is the flag of the commands whose output is for scripts, too.
type asJSON struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// print writes v as JSON when asked to, and otherwise what people writes.
func (j asJSON) print(e *env, v any, people func()) error {
	if !j.JSON {
		people()
		return nil
	}
	encoder := json.NewEncoder(e.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

type migrateCmd struct{ database }

func (c *migrateCmd) Run(e *env) error {
	if err := schema.Migrate(e.ctx, c.URL); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, "the database has this release's schema")
	return nil
}

type purgeCmd struct {
	database
	asJSON
	PurgeAfter    time.Duration `default:"720h" help:"Age at which a settled notification loses its content, tasks and attempts; its key stays. 0: none."`
	ForgetAfter   time.Duration `default:"8760h" help:"How long after that the key is kept. Later the same key makes a new notification. 0: for ever."`
	ReceiptsFor   time.Duration `default:"168h" help:"How long receipts are kept. 0: for ever."`
	OutsideDir    string        `env:"TIDINGS_OUTSIDE_DIR" placeholder:"DIRECTORY" help:"The servers' setting: a database that is older than its witness is not purged."`
	TombstonesFor time.Duration `env:"TIDINGS_TOMBSTONES_FOR" default:"720h" help:"How long the key of a purged message is kept: the setting of the servers. Later a repetition is a new message. 0: for ever."`
}

const purgeSize = 1000

// Run purges notifications by the flags, and conversations by the retention that each of them has.
func (c *purgeCmd) Run(e *env) error {
	if c.TombstonesFor != 0 && c.TombstonesFor < server.LeastTombstones {
		return fmt.Errorf("%w: tombstones-for must be 0 or at least %v", server.ErrConfig, server.LeastTombstones)
	}
	s, close, err := c.openServed(e, c.OutsideDir)
	if err != nil {
		return err
	}
	defer close()
	done := map[string]int{}
	steps := func(name string, age time.Duration, do func() (int, bool, error)) {
		done[name] = 0
		for more := age > 0; more && err == nil; {
			var n int
			n, more, err = do()
			done[name] += n
		}
	}
	steps("purged", c.PurgeAfter, func() (int, bool, error) { return s.Purge(e.ctx, c.PurgeAfter, purgeSize) })
	steps("forgotten", c.ForgetAfter, func() (int, bool, error) { return s.DeleteTombstones(e.ctx, c.ForgetAfter, purgeSize) })
	steps("receipts", c.ReceiptsFor, func() (int, bool, error) {
		n, err := s.PurgeReceipts(e.ctx, c.ReceiptsFor)
		return n, false, err
	})
	var logs store.PurgedLogs
	if err == nil {
		logs, err = s.PurgeLogs(e.ctx)
	}
	steps("message_keys_forgotten", c.TombstonesFor, func() (int, bool, error) { return s.ForgetMessages(e.ctx, c.TombstonesFor, purgeSize) })
	done["conversations"], done["events"], done["message_keys_kept"] = logs.Conversations, logs.Events, logs.Tombstones
	printed := c.print(e, done, func() {
		fmt.Fprintf(e.stdout, "%s emptied, %s forgotten, %s deleted\n",
			count(done["purged"], "notification"), count(done["forgotten"], "key"), count(done["receipts"], "receipt"))
		fmt.Fprintf(e.stdout, "%s of %s purged, %s kept of them; %s forgotten\n", count(logs.Events, "event"), count(logs.Conversations, "conversation"),
			count(logs.Tombstones, "key"), count(done["message_keys_forgotten"], "older key"))
	})
	return errors.Join(err, printed)
}
