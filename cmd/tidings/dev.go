// The command dev: everything on this machine to try it out, and what it prints.

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
	"github.com/tidings-project/tidings/internal/localpg"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

type devCmd struct {
	Dir   string `default:".tidings" help:"Where the database is kept from one run to the next."`
	Fresh bool   `help:"Start with an empty database."`

	Port         int `default:"8080" help:"Of the API and of chat. A port that is taken is replaced by a free one, the same each time if possible."`
	PostgresPort int `default:"0" help:"Of PostgreSQL; 0: a free one, the same each time if possible."`
	SMTPPort     int `name:"smtp-port" default:"2525" help:"Of the mail server."`
	ReceiverPort int `default:"8025" help:"Of the webhook receiver, which also shows the mails."`
	DoublesPort  int `default:"8026" help:"Of the scripted providers."`

	LogLevel slog.Level `default:"warn" help:"debug, info, warn or error."`
}

// What is there from the start: users, and a conversation between them.
const (
	devUser = "u-ana"
	devPeer = "u-ben"
	devConv = "c-demo"
)

// devTokens is how long the printed tokens are good.
const devTokens = 30 * 24 * time.Hour

func (c *devCmd) Run(e *env) (err error) {
	if c.Fresh {
		if err := localpg.Remove(e.ctx, c.Dir); err != nil {
			return fmt.Errorf("start afresh: %w", err)
		}
		for _, user := range []string{devUser, devPeer} { // they are about the former database
			if err := os.Remove(c.outbox(user)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("start afresh: %w", err)
			}
		}
	}
	fmt.Fprintln(e.stdout, "starting PostgreSQL …")
	box, err := sandbox.Start(e.ctx, sandbox.Options{Dir: c.Dir, PostgresPort: c.PostgresPort, SMTPPort: c.SMTPPort,
		ReceiverPort: c.ReceiverPort, DoublesPort: c.DoublesPort,
		OnMail: func(m sandbox.Mail) {
			fmt.Fprintf(e.stdout, "mail for %s: %s — %s\n", strings.Join(m.To, ", "), m.Subject, strings.TrimSpace(m.Text))
		},
		OnHook: func(h sandbox.Hook) { fmt.Fprintf(e.stdout, "webhook, signature verified: %s\n", h.Body) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()

	var cfg server.Config
	if err := kong.ApplyDefaults(&cfg); err != nil {
		return fmt.Errorf("read the settings' defaults: %w", err)
	}
	cfg.DatabaseURL, cfg.MetricsListen, cfg.Roles = box.DatabaseURL(), "", []string{server.RoleAPI, server.RoleWorker, server.RoleGateway}
	cfg.Channels = box.Channels(2*time.Second, 5*time.Second)
	secret, err := devSecret(filepath.Join(c.Dir, "secret"))
	if err != nil {
		return err
	}
	cfg.TokenHS256Secret = server.Secret{Text: secret}
	cfg.OutsideDir = filepath.Join(c.Dir, "pg", "outside") // goes with this database when there is a fresh one
	port, err := c.apiPort(box)
	if err != nil {
		return err
	}
	var s *server.Server
	if err := box.OnPort("the API", port, func(addr string) (err error) {
		cfg.Listen = addr
		s, err = server.New(e.ctx, cfg, slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: c.LogLevel})))
		return err
	}); err != nil {
		return err
	}
	key, err := devKey(e.ctx, s.Store(), filepath.Join(c.Dir, "key"))
	if err == nil {
		err = seed(e.ctx, s.Store(), devUser)
	}
	tokens := map[string]string{devUser: "", devPeer: ""}
	for user := range tokens {
		if err == nil {
			tokens[user], err = token.IssueHS256([]byte(secret), cfg.TokenAudience, token.Claims{User: user, Issued: time.Now(), Expires: time.Now().Add(devTokens)})
		}
	}
	if err != nil {
		s.Close()
		return err
	}
	c.welcome(e, box, s.URL(), key, tokens)
	return s.Run(e.ctx)
}

// devKey is a key with every scope. It stays the same from one run to the next, so that what was pasted once still works.
func devKey(ctx context.Context, s *store.Store, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		if _, err = s.FindKey(ctx, string(text)); err == nil {
			return string(text), nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) && tidings.ErrorCode(err) != tidings.Unauthenticated {
		return "", fmt.Errorf("read the key: %w", err)
	}
	secret, _, err := s.CreateKey(ctx, "dev", store.Scopes)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		return "", fmt.Errorf("keep the key: %w", err)
	}
	return secret, nil
}

// devSecret signs the tokens of users. It stays the same from one run to the next, like the key.
func devSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text() + rand.Text())
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("keep the secret of the tokens: %w", err)
	}
	return string(text), nil
}

// seed makes a user reachable on every channel that can show something, unless the user has preferences already, and makes the conversation.
func seed(ctx context.Context, s *store.Store, user string) error {
	if _, err := s.CreateConversation(ctx, store.Conversation{Conv: devConv, RecallWindow: tidings.DefaultRecallWindow, Members: []string{devUser, devPeer}}); err != nil {
		return err
	}
	prefs, err := s.GetPrefs(ctx, user)
	if err != nil || len(prefs) > 0 {
		return err
	}
	for channel, address := range map[string]string{"email": "ana@example.test", "webhook": "ana", "push": "ana-phone", "sms": "+15550100", "plain": "ana-pager"} {
		if _, err := s.PutPref(ctx, user, store.Pref{Channel: channel, Address: address, Enabled: true}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *devCmd) welcome(e *env, box *sandbox.Sandbox, url, key string, tokens map[string]string) {
	p := func(format string, args ...any) { fmt.Fprintf(e.stdout, format+"\n", args...) }
	for _, note := range box.Notes {
		p("%s", note)
	}
	p("")
	p("API        %s   described by %s/v1/openapi.json", url, url)
	p("mails      %s   what arrived over SMTP at %s", box.MailsURL(), box.SMTPAddr())
	p("webhooks   %s   what arrived with a good signature", box.HooksURL())
	p("providers  %s   scripted push, sms and plain doubles", box.Doubles.URL())
	p("database   %s   kept in %s", box.DatabaseURL(), c.Dir)
	p("API key    %s", key)
	p("")
	// A key that was used is a duplicate: the time makes those of this run new.
	order := time.Now().Format("order-0102-150405")
	self := invocation()
	submit := func(event, more string) {
		p(`  curl -sS %s/v1/notifications -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \`, url, key)
		p(`    -d '{"user":"%s","event_key":"%s-%s","title":"Your order","body":"Your order: %s.","ttl_s":3600%s}'`, devUser, order, event, event, more)
	}
	p("Tell %s something, on every channel, and see what became of it:", devUser)
	p("")
	submit("shipped", "")
	p(`  curl -sS '%s/v1/notifications?user=%s&event_key=%s-shipped' -H 'Authorization: Bearer %s'`, url, devUser, order, key)
	p("")
	p("Let the next answer of the push provider come too late, and see after some seconds what the worker makes of it:")
	p("")
	p(`  curl -sS %s/script -d '{"mode":"push","steps":[{"do":"accept","delay_ms":5000}]}'`, box.Doubles.URL())
	submit("delayed", `,"channels":["push"]`)
	p(`  curl -sS '%s/v1/notifications?user=%s&event_key=%s-delayed' -H 'Authorization: Bearer %s'`, url, devUser, order, key)
	p("")
	p("Let a provider that can neither recognise a repeat nor be asked take a message and never answer. After some seconds a person has to look:")
	p("")
	p(`  curl -sS %s/script -d '{"mode":"plain","steps":[{"do":"hang"}]}'`, box.Doubles.URL())
	submit("lost", `,"channels":["plain"]`)
	p("  export TIDINGS_URL=%s TIDINGS_KEY=%s", url, key)
	p("  %s review list      # also: review show TASK, review resolve SENT TASK, notify show USER EVENT, channel list", self)
	p("")
	p("Talk: each of these in a terminal of its own. Stop and start tidings dev in between: what you type meanwhile is sent once when it is back.")
	for _, user := range []string{devUser, devPeer} {
		p("")
		p("  export TIDINGS_URL=%s TIDINGS_TOKEN=%s", url, tokens[user])
		p("  %s chat %s --outbox %s", self, devConv, c.outbox(user))
	}
	p("")
	p("The same by HTTP, and another user:")
	p("")
	p("  export URL=%s KEY=%s TOKEN=%s", url, key, tokens[devUser])
	p(`  curl -sS -X PUT $URL/v1/conversations/%s/messages/hello-1 -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '{"body":"Hello by HTTP."}'`, devConv)
	p(`  curl -sS "$URL/v1/conversations/%s/events?after=0" -H "Authorization: Bearer $TOKEN"`, devConv)
	p(`  curl -sS -X PUT $URL/v1/conversations/%s/members/u-cara -H "Authorization: Bearer $KEY"`, devConv)
	p("  TIDINGS_TOKEN_HS256_SECRET=$(cat %s) %s token issue u-cara", filepath.Join(c.Dir, "secret"), self)
	p("")
	p("Ctrl-C stops everything.")
	p("")
}
