// Package server wires the product together: configuration, database, API, worker, housekeeping, and an orderly end.
package server

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Roles of a process. Several processes can have the same role.
const (
	RoleAPI    = "api"    // serves HTTP
	RoleWorker = "worker" // carries out tasks, and does the housekeeping
)

// Config is everything that can be set. Each field is a flag of `tidings serve`, an environment variable and a key of the
// configuration file; a flag wins over the environment, the environment over the file, the file over the default.
// docs/configuration.md is printed from the tags.
type Config struct {
	DatabaseURL   string   `name:"database-url" env:"TIDINGS_DATABASE_URL" placeholder:"URL" help:"PostgreSQL connection string."`
	DatabaseConns int32    `name:"database-conns" env:"TIDINGS_DATABASE_CONNS" default:"20" help:"Largest number of connections to the database."`
	Roles         []string `name:"roles" env:"TIDINGS_ROLES" default:"api,worker" enum:"api,worker" help:"What this process does: api serves HTTP, worker carries out tasks and does the housekeeping."`

	Listen        string   `name:"listen" env:"TIDINGS_LISTEN" default:"127.0.0.1:8080" help:"Where HTTP is served, without TLS: put a proxy in front. A worker alone serves only /healthz, /readyz and /metrics."`
	MetricsListen string   `name:"metrics-listen" env:"TIDINGS_METRICS_LISTEN" placeholder:"ADDRESS" help:"Serves /metrics without a key at this address. On the main address it needs a key with the scope metrics."`
	Origins       []string `name:"origins" env:"TIDINGS_ORIGINS" placeholder:"ORIGIN" help:"Origins whose browsers may read the answer of /readyz."`

	LameDuck time.Duration `name:"lame-duck" env:"TIDINGS_LAME_DUCK" default:"0s" help:"How long a stop goes on serving while /readyz says no already, so that load balancers notice."`
	Drain    time.Duration `name:"drain" env:"TIDINGS_DRAIN" default:"30s" help:"How long a stop waits for requests and calls in flight."`
	Poll     time.Duration `name:"poll" env:"TIDINGS_POLL" default:"250ms" help:"How long an idle worker waits before it looks for due tasks without being woken."`
	Backoff  time.Duration `name:"backoff" env:"TIDINGS_BACKOFF" default:"1s" help:"Base of the delay before a retry; it doubles with each attempt and is drawn at random."`
	MaxDelay time.Duration `name:"max-delay" env:"TIDINGS_MAX_DELAY" default:"5m" help:"Longest delay before a retry, unless the provider asks for more."`

	PurgeAfter       time.Duration `name:"purge-after" env:"TIDINGS_PURGE_AFTER" default:"720h" help:"Age at which a settled notification loses its content, tasks and attempts; its key stays. One that had no task keeps its content as long as its key. 0: never."`
	ForgetAfter      time.Duration `name:"forget-after" env:"TIDINGS_FORGET_AFTER" default:"8760h" help:"How long after that the key is kept. Later the same key makes a new notification. 0: for ever."`
	ReceiptsFor      time.Duration `name:"receipts-for" env:"TIDINGS_RECEIPTS_FOR" default:"168h" help:"How long receipts are kept; one that matches no task by then never will. 0: for ever."`
	HousekeepingEach time.Duration `name:"housekeeping-each" env:"TIDINGS_HOUSEKEEPING_EACH" default:"1m" help:"How often a worker purges."`

	LogLevel slog.Level `name:"log-level" env:"TIDINGS_LOG_LEVEL" default:"info" help:"debug, info, warn or error. Logs are JSON on the standard error; they hold neither bodies, addresses nor keys."`

	Channels map[string]Channel `kong:"-"`
}

// ErrConfig is what every error is that only another configuration can mend.
var ErrConfig = errors.New("wrong configuration")

// check refuses what cannot work. The error is an ErrConfig.
func (c *Config) check() error {
	if err := c.wrong(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (c *Config) wrong() error {
	if c.DatabaseURL == "" {
		return errors.New("no database: set --database-url, TIDINGS_DATABASE_URL or database_url")
	}
	if len(c.Roles) == 0 {
		return errors.New("a process without a role does nothing: give --roles")
	}
	for _, r := range c.Roles {
		if r != RoleAPI && r != RoleWorker {
			return fmt.Errorf("%q is no role: there are %s and %s", r, RoleAPI, RoleWorker)
		}
	}
	if c.is(RoleWorker) && len(c.Channels) == 0 {
		return errors.New("a worker without channels does nothing: the configuration file names them under channels")
	}
	if c.Drain <= 0 || c.HousekeepingEach <= 0 || c.DatabaseConns <= 0 {
		return errors.New("drain, housekeeping-each and database-conns must be above 0")
	}
	return nil
}

func (c *Config) is(role string) bool { return slices.Contains(c.Roles, role) }
