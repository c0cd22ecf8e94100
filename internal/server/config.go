// Package server wires the product together: configuration, database, API, worker, housekeeping, and an orderly end.
package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

// Roles of a process. Several processes can have the same role.
const (
	RoleAPI     = "api"     // serves HTTP
	RoleWorker  = "worker"  // carries out tasks, and does the housekeeping
	RoleGateway = "gateway" // serves the WebSockets of conversations
)

// Config is everything that can be set. Each field is a flag of `tidings serve`, an environment variable and a key of the
// configuration file; a flag wins over the environment, the environment over the file, the file over the default.
// docs/configuration.md is printed from the tags.
type Config struct {
	DatabaseURL   string   `name:"database-url" env:"TIDINGS_DATABASE_URL" placeholder:"URL" help:"PostgreSQL connection string."`
	DatabaseConns int32    `name:"database-conns" env:"TIDINGS_DATABASE_CONNS" default:"40" help:"Largest number of connections to the database; a gateway that has another role beside it has half of them for itself. At least 2, a worker at least 3; where they are divided twice as many. It opens two more, for wake-ups."`
	Roles         []string `name:"roles" env:"TIDINGS_ROLES" default:"api,worker" enum:"api,worker,gateway" help:"What this process does: api serves HTTP, worker carries out tasks and does the housekeeping, gateway serves the WebSockets of conversations."`

	Listen        string   `name:"listen" env:"TIDINGS_LISTEN" default:"127.0.0.1:8080" help:"Where HTTP is served, without TLS: put a proxy in front. A worker alone serves only /healthz, /readyz and /metrics."`
	MetricsListen string   `name:"metrics-listen" env:"TIDINGS_METRICS_LISTEN" placeholder:"ADDRESS" help:"Serves /metrics without a key at this address. On the main address it needs a key with the scope metrics."`
	Origins       []string `name:"origins" env:"TIDINGS_ORIGINS" placeholder:"ORIGIN" help:"Origins of browsers that may open WebSockets and read the answer of /readyz, as a browser writes them; * is every one. What is no browser has none and may."`

	TokenHS256Secret Secret        `name:"token-hs256-secret" env:"TIDINGS_TOKEN_HS256_SECRET" placeholder:"SECRET" help:"Accepts users' tokens signed by HS256 with this secret of at least 32 bytes: for development. Whoever has it can be any user. Prefer the environment: other users of the machine can read a command line."`
	TokenPublicKeys  []string      `name:"token-public-keys" env:"TIDINGS_TOKEN_PUBLIC_KEYS" placeholder:"FILE" help:"PEM files with public keys, Ed25519 or RSA of at least 2048 bits: accepts users' tokens signed by EdDSA or RS256 with one of them."`
	TokenJWKSURL     string        `name:"token-jwks-url" env:"TIDINGS_TOKEN_JWKS_URL" placeholder:"URL" help:"Where the issuer of users' tokens publishes its public keys as a JSON Web Key Set; https, or http on the loopback."`
	TokenAudience    string        `name:"token-audience" env:"TIDINGS_TOKEN_AUDIENCE" default:"tidings" help:"What the claim aud of a user's token must contain."`
	TokenLeeway      time.Duration `name:"token-leeway" env:"TIDINGS_TOKEN_LEEWAY" default:"30s" help:"How far the clocks of the issuer and of this machine may differ: a token is accepted that much longer, and before it begins. At most 5m."`

	GatewayPing        time.Duration `name:"gateway-ping" env:"TIDINGS_GATEWAY_PING" default:"25s" help:"How often a WebSocket is pinged; one that does not answer within 10 s, or within this time if that is less, is closed."`
	GatewayLease       time.Duration `name:"gateway-lease" env:"TIDINGS_GATEWAY_LEASE" default:"15s" help:"How long a gateway that the database does not hear of counts as alive."`
	GatewayDrain       time.Duration `name:"gateway-drain" env:"TIDINGS_GATEWAY_DRAIN" default:"10s" help:"Over how long a gateway that stops closes its WebSockets, so that their clients do not come back all at once."`
	GatewayConnections int           `name:"gateway-connections" env:"TIDINGS_GATEWAY_CONNECTIONS" default:"100000" help:"WebSockets of one gateway."`
	GatewayPerUser     int           `name:"gateway-per-user" env:"TIDINGS_GATEWAY_PER_USER" default:"20" help:"WebSockets of one user at one gateway."`
	GatewayRate        float64       `name:"gateway-rate" env:"TIDINGS_GATEWAY_RATE" default:"100" help:"Requests per second of one WebSocket; twice as many may come at once. More are answered with RATE_LIMITED."`
	GatewayBatch       int           `name:"gateway-batch" env:"TIDINGS_GATEWAY_BATCH" default:"256" help:"Messages that are written to the log in one transaction at most."`

	LameDuck time.Duration `name:"lame-duck" env:"TIDINGS_LAME_DUCK" default:"0s" help:"How long a stop goes on serving while /readyz says no already, so that load balancers notice."`
	Drain    time.Duration `name:"drain" env:"TIDINGS_DRAIN" default:"30s" help:"How long a stop waits for requests and calls in flight."`
	Poll     time.Duration `name:"poll" env:"TIDINGS_POLL" default:"250ms" help:"How long an idle worker waits before it looks for due tasks without being woken."`
	Backoff  time.Duration `name:"backoff" env:"TIDINGS_BACKOFF" default:"1s" help:"Base of the delay before a retry; it doubles with each attempt and is drawn at random."`
	MaxDelay time.Duration `name:"max-delay" env:"TIDINGS_MAX_DELAY" default:"5m" help:"Longest delay before a retry, unless the provider asks for more."`

	Retention     time.Duration `name:"retention" env:"TIDINGS_RETENTION" default:"0s" help:"How long the events of a conversation are kept, unless its creation says otherwise: it is copied at the creation. 0: for ever."`
	TombstonesFor time.Duration `name:"tombstones-for" env:"TIDINGS_TOMBSTONES_FOR" default:"720h" help:"How long the key of a purged message is kept: so long a late repetition of it is refused, later it is a new message. Clients ask a person a day earlier. At least 48h; 0: for ever."`
	OutsideDir    string        `name:"outside-dir" env:"TIDINGS_OUTSIDE_DIR" placeholder:"DIRECTORY" help:"Where a witness of the newest commit and the journal of what was taken back are kept, outside the database and its backups: a restore is noticed by the one and made good by the other."`

	ChatNotifyAfter   time.Duration `name:"chat-notify-after" env:"TIDINGS_CHAT_NOTIFY_AFTER" default:"0s" help:"After how long members who are not connected are notified of a message that they have not read, unless the creation of the conversation says otherwise: it is copied at the creation. 0: never."`
	ChatNotifyTitle   string        `name:"chat-notify-title" env:"TIDINGS_CHAT_NOTIFY_TITLE" default:"New message" help:"The title of such a notification."`
	ChatNotifyTTL     time.Duration `name:"chat-notify-ttl" env:"TIDINGS_CHAT_NOTIFY_TTL" default:"24h" help:"When such a notification is worthless, counted from its creation or from the end of the user's quiet hours."`
	ChatPreviewLength int           `name:"chat-preview-length" env:"TIDINGS_CHAT_PREVIEW_LENGTH" default:"140" help:"How many characters of the message it shows where the conversation's setting preview is on; at most 4096."`

	PurgeAfter       time.Duration `name:"purge-after" env:"TIDINGS_PURGE_AFTER" default:"720h" help:"Age at which a settled notification loses its content, tasks and attempts; its key stays. One that had no task keeps its content as long as its key. 0: never."`
	ForgetAfter      time.Duration `name:"forget-after" env:"TIDINGS_FORGET_AFTER" default:"8760h" help:"How long after that the key is kept. Later the same key makes a new notification. 0: for ever."`
	ReceiptsFor      time.Duration `name:"receipts-for" env:"TIDINGS_RECEIPTS_FOR" default:"168h" help:"How long receipts are kept; one that matches no task by then never will. 0: for ever."`
	HousekeepingEach time.Duration `name:"housekeeping-each" env:"TIDINGS_HOUSEKEEPING_EACH" default:"1m" help:"How often what is old enough is purged: notifications by workers, conversations by every process."`

	ReportFile string `name:"report-file" env:"TIDINGS_REPORT_FILE" placeholder:"FILE" help:"The report.json that tidings-lab report wrote, for operators to read at /v1/operator/report. It is read anew for each request."`

	LogLevel slog.Level `name:"log-level" env:"TIDINGS_LOG_LEVEL" default:"info" help:"debug, info, warn or error. Logs are JSON on the standard error; they hold neither bodies, addresses nor keys. That an operator has read what was said in a conversation is logged, whatever this says."`

	Channels map[string]Channel `kong:"-"`
}

// UnmarshalText reads a secret that is a setting of its own: a flag, an environment variable or a key gives the secret itself.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret{Text: string(text)}
	return nil
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
		if r != RoleAPI && r != RoleWorker && r != RoleGateway {
			return fmt.Errorf("%q is no role: there are %s, %s and %s", r, RoleAPI, RoleWorker, RoleGateway)
		}
	}
	if c.is(RoleWorker) && len(c.Channels) == 0 {
		return errors.New("a worker without channels does nothing: the configuration file names them under channels; for conversations alone: --roles gateway,api")
	}
	if c.is(RoleGateway) && !c.takesTokens() {
		return errors.New("a gateway knows its users by their tokens: set token-public-keys, token-jwks-url or token-hs256-secret")
	}
	if c.GatewayPing <= 0 || c.GatewayLease <= 0 || c.GatewayDrain <= 0 || c.GatewayConnections <= 0 || c.GatewayPerUser <= 0 || c.GatewayRate <= 0 || c.GatewayBatch <= 0 {
		return errors.New("the settings of the gateway must be above 0")
	}
	if c.Drain <= 0 || c.HousekeepingEach <= 0 {
		return errors.New("drain and housekeeping-each must be above 0")
	}
	if c.DatabaseConns < 2 {
		return errors.New("database-conns must be at least 2: marking notifications takes two at once")
	}
	if c.divided() && c.DatabaseConns < 4 {
		return errors.New("database-conns must be at least 4 for a gateway that has another role beside it: each half takes two at once")
	}
	if least := int32(3); c.is(RoleWorker) && (c.DatabaseConns < least || c.divided() && c.DatabaseConns < 2*least) {
		return errors.New("database-conns must be at least 3 for a worker, 6 with a gateway beside it: marking notifications and notifying members take two each, one of which they hold while they wait for the other")
	}
	if c.Retention > store.LongestSetting {
		return fmt.Errorf("retention must be at most %d days", store.LongestSetting/(24*time.Hour))
	}
	if c.Retention < 0 || c.Retention > 0 && c.Retention < time.Millisecond {
		return errors.New("retention must be 0 or at least a millisecond")
	}
	if c.ChatNotifyAfter > store.LongestSetting || c.ChatNotifyAfter < 0 || c.ChatNotifyAfter > 0 && c.ChatNotifyAfter < time.Millisecond {
		return fmt.Errorf("chat-notify-after must be 0, or a millisecond to %d days", store.LongestSetting/(24*time.Hour))
	}
	if c.is(RoleWorker) {
		if err := c.wrongNotice(); err != nil {
			return err
		}
	}
	if c.TombstonesFor != 0 && c.TombstonesFor < LeastTombstones {
		return fmt.Errorf("tombstones-for must be 0 or at least %v: clients send a message again until a day before", LeastTombstones)
	}
	_, err := c.verifier(nil)
	return err
}

// wrongNotice judges what a worker writes to members who have not read: a notification that would be refused is refused here.
func (c *Config) wrongNotice() error {
	try := tidings.Notification{User: "u", EventKey: "e", Title: c.ChatNotifyTitle, TTL: tidings.Seconds(c.ChatNotifyTTL)}
	if err := try.Check(); err != nil {
		return fmt.Errorf("chat-notify-title and chat-notify-ttl: %w", err)
	}
	if c.ChatNotifyTTL < time.Second || c.ChatPreviewLength < 1 || c.ChatPreviewLength > 4096 {
		return errors.New("chat-notify-ttl must be at least a second, chat-preview-length 1 to 4096")
	}
	return nil
}

// LeastTombstones is the shortest time for which the key of a purged message can be kept.
const LeastTombstones = 48 * time.Hour

// resendMargin is what a resend may take on its way, and by what clocks may differ.
const resendMargin = 24 * time.Hour

// resendFor is how long a client may send a message again by itself; 0: for ever.
func (c *Config) resendFor() time.Duration { return max(c.TombstonesFor-resendMargin, 0) }

// verifier makes what verifies users' tokens; nil when nothing is configured that could: then only API keys are accepted.
func (c *Config) verifier(log *slog.Logger) (*token.Verifier, error) {
	secret, err := c.TokenHS256Secret.read()
	if err != nil {
		return nil, err
	}
	if !c.takesTokens() {
		return nil, nil
	}
	cfg := token.Config{HS256Secret: []byte(secret), JWKSURL: c.TokenJWKSURL, Audience: c.TokenAudience, Leeway: c.TokenLeeway, Logger: log}
	for _, path := range c.TokenPublicKeys {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a public key of tokens: %w", err)
		}
		cfg.PublicKeys = append(cfg.PublicKeys, text)
	}
	return token.New(cfg)
}

// takesTokens tells whether users can authenticate by tokens.
func (c *Config) takesTokens() bool {
	secret, err := c.TokenHS256Secret.read()
	return err != nil || secret != "" || len(c.TokenPublicKeys) > 0 || c.TokenJWKSURL != ""
}

// divided tells whether the connections are divided: the gateway's are not taken by calls of the API that wait for a lock.
func (c *Config) divided() bool { return c.is(RoleGateway) && (c.is(RoleAPI) || c.is(RoleWorker)) }

func (c *Config) is(role string) bool { return slices.Contains(c.Roles, role) }
