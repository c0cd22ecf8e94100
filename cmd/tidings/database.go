// Commands that work on the database itself: the connection flag, migrate, recover, purge.

package main

import (
	"encoding/json"
	"fmt"
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
	if s, err = server.OpenStore(d.URL, 4); err != nil {
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

type recoverCmd struct {
	database
	asJSON
	StoppedAt time.Time `format:"2006-01-02T15:04:05Z07:00" help:"When the last worker stopped. Default: now."`
	LostSince time.Time `format:"2006-01-02T15:04:05Z07:00" help:"The newest instant that the restored copy holds. Default: unknown."`
	Lossless  bool      `help:"Nothing was lost: only record the database as it is, after a planned switch or an upgrade."`
}

// Run makes a restored database fit to send from. No worker may run meanwhile.
func (c *recoverCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	others, err := s.Others(e.ctx)
	if err != nil {
		return err
	}
	if others.Sessions+others.Leases > 0 {
		fmt.Fprintf(e.stderr, "warning: no worker may run during a recovery; connected to this database: %s of tidings; held under a lease that is not over: %s\n",
			count(others.Sessions, "other session"), count(others.Leases, "task"))
	}
	options := store.RecoverOptions{Lossless: c.Lossless}
	if !c.StoppedAt.IsZero() {
		options.StoppedAt = &c.StoppedAt
	}
	if !c.LostSince.IsZero() {
		options.LostSince = &c.LostSince
	}
	report, err := s.Recover(e.ctx, options)
	if err != nil {
		return err
	}
	return c.print(e, report, func() {
		fmt.Fprintf(e.stdout, "in doubt now: %s that a worker held, %d that were scheduled, %d of which had been in doubt before\n",
			count(report.Sending, "task"), report.Pending+report.Unknown, report.Unknown)
		fmt.Fprintf(e.stdout, "generation %d on system %s, timeline %d\n", report.Generation, report.Lineage.SystemIdentifier, report.Lineage.Timeline)
	})
}

type purgeCmd struct {
	database
	asJSON
	PurgeAfter  time.Duration `default:"720h" help:"Age at which a settled notification loses its content, tasks and attempts; its key stays. 0: none."`
	ForgetAfter time.Duration `default:"8760h" help:"How long after that the key is kept. Later the same key makes a new notification. 0: for ever."`
	ReceiptsFor time.Duration `default:"168h" help:"How long receipts are kept. 0: for ever."`
}

const purgeSize = 1000

func (c *purgeCmd) Run(e *env) error {
	s, close, err := c.open(e)
	if err != nil {
		return err
	}
	defer close()
	done := map[string]int{"purged": 0, "forgotten": 0, "receipts": 0}
	for more := c.PurgeAfter > 0; more; {
		var n int
		n, more, err = s.Purge(e.ctx, c.PurgeAfter, purgeSize)
		if done["purged"] += n; err != nil {
			return err
		}
	}
	for more := c.ForgetAfter > 0; more; {
		var n int
		n, more, err = s.DeleteTombstones(e.ctx, c.ForgetAfter, purgeSize)
		if done["forgotten"] += n; err != nil {
			return err
		}
	}
	if c.ReceiptsFor > 0 {
		if done["receipts"], err = s.PurgeReceipts(e.ctx, c.ReceiptsFor); err != nil {
			return err
		}
	}
	return c.print(e, done, func() {
		fmt.Fprintf(e.stdout, "%s emptied, %s forgotten, %s deleted\n",
			count(done["purged"], "notification"), count(done["forgotten"], "key"), count(done["receipts"], "receipt"))
	})
}
