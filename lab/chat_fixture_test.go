// The scene of the checks of conversations: a database, gateways in processes of their own, the API, tokens.

package lab_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/pgproxy"
	"github.com/tidings-project/tidings/lab/proc"
)

const (
	tokenSecret   = "a secret that only the checks know, 32 bytes and more"
	tokenAudience = "tidings"
)

// chat is where a check of the conversations plays: a database of its own and gateways in processes of their own. What a check
// does to them it does from outside.
type chat struct {
	*scene
	key string // an API key with every scope
}

// newChat makes a chat with an empty database.
func newChat(t *lab.T) *chat { return chatOn(t, pgtest.NewPlain(t)) }

func chatOn(t *lab.T, pool *pgxpool.Pool) *chat {
	t.Helper()
	c := &chat{scene: &scene{T: t, ctx: t.Context(), pool: pool}}
	t.Version("postgresql", one[string](c.scene, "SHOW server_version"))
	c.key = strings.TrimSpace(c.tidings("key", "create", "lab", "--scopes", "all"))
	return c
}

// node is a process that serves the gateway and the API.
type node struct {
	*proc.Process
	c   *chat
	url string // http://127.0.0.1:port
}

// nodeOptions change how a node is started.
type nodeOptions struct {
	database string   // another way to the database, as through a proxy
	env      []string // TIDINGS_…=…
}

// through lets a node reach the database through a proxy.
func through(p *pgproxy.Proxy) func(*nodeOptions) {
	return func(o *nodeOptions) { o.database = p.URL() }
}

// with sets an environment variable of a node: its configuration.
func with(name, value string) func(*nodeOptions) {
	return func(o *nodeOptions) { o.env = append(o.env, name+"="+value) }
}

// node starts a process with the roles gateway and api and waits until it is ready.
func (c *chat) node(name string, options ...func(*nodeOptions)) *node {
	c.Helper()
	o := nodeOptions{database: c.url()}
	for _, option := range options {
		option(&o)
	}
	cmd := exec.Command(program(c.T, "../cmd/tidings"), "serve", "--roles", "gateway,api", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "TIDINGS_DATABASE_URL="+o.database, "TIDINGS_TOKEN_HS256_SECRET="+tokenSecret, "TIDINGS_TOKEN_AUDIENCE="+tokenAudience)
	cmd.Env = append(cmd.Env, o.env...)
	n := &node{Process: proc.Start(c, name, cmd), c: c}
	var line struct {
		URL string `json:"url"`
	}
	c.Must("read where "+name+" serves", json.Unmarshal([]byte(n.Await(`"msg":"serving"`, soon)), &line))
	n.url = line.URL
	c.Until(name+" is ready", soon, func() bool {
		r, err := http.Get(n.url + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return n
}

// proxy stands between a node and the database.
func (c *chat) proxy() *pgproxy.Proxy {
	c.Helper()
	return pgproxy.Start(c, c.url())
}

// answer is what the API said.
type answer struct {
	status int
	header http.Header
	raw    string
	body   frame
}

// as asks the API in a user's name, with the user's own token.
func (n *node) as(user, method, path string, body any) answer {
	n.c.Helper()
	return n.http(method, path, body, "Authorization", "Bearer "+token(user))
}

// server asks the API with the server's key; user "" names nobody.
func (n *node) server(user, method, path string, body any) answer {
	n.c.Helper()
	header := []string{"Authorization", "Bearer " + n.c.key}
	if user != "" {
		header = append(header, "Tidings-User", user)
	}
	return n.http(method, path, body, header...)
}

func (n *node) http(method, path string, body any, header ...string) answer {
	n.c.Helper()
	var content io.Reader
	if body != nil {
		b, ok := body.([]byte)
		if !ok {
			var err error
			b, err = json.Marshal(body)
			n.c.Must("write a request", err)
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(n.c.ctx, method, n.url+path, content)
	n.c.Must("make a request", err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	n.c.Must(method+" "+path, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	n.c.Must("read an answer", err)
	a := answer{status: response.StatusCode, header: response.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &a.body) // an answer without a body has none
	return a
}

// conversation creates a conversation with its first members: they are its first events.
func (n *node) conversation(conv string, members ...string) {
	n.c.Helper()
	a := n.server("", http.MethodPut, "/v1/conversations/"+conv, map[string]any{"members": members})
	if a.status != http.StatusCreated {
		n.c.Fatalf("create a conversation: %d %s", a.status, a.raw)
	}
}

// join and leave change the membership and return the seq of the event.
func (n *node) join(conv, user string) int64 { return n.membership(http.MethodPut, conv, user) }

func (n *node) leave(conv, user string) int64 { return n.membership(http.MethodDelete, conv, user) }

func (n *node) membership(method, conv, user string) int64 {
	n.c.Helper()
	a := n.server("", method, "/v1/conversations/"+conv+"/members/"+user, nil)
	if a.status/100 != 2 {
		n.c.Fatalf("%s member: %d %s", method, a.status, a.raw)
	}
	return a.body.num("seq")
}

// token is a user's token, good for an hour. claims change it.
func token(user string, claims ...func(map[string]any)) string {
	c := map[string]any{"sub": user, "aud": tokenAudience, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for _, change := range claims {
		change(c)
	}
	return signed("HS256", tokenSecret, c)
}

// signed makes a token by hand, so that a check can make bad ones, too.
func signed(alg, secret string, claims map[string]any) string {
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("write a token: %v", err))
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]any{"alg": alg, "typ": "JWT"}) + "." + part(claims)
	if alg == "none" {
		return text + "."
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// log is a conversation as it stands in the database.
func (c *chat) log(conv string) (events []logged) {
	c.Helper()
	rows, err := c.pool.Query(c.ctx, `SELECT seq, kind, sender_user, coalesce(cmid, ''), coalesce(body, '') FROM tidings.event WHERE conv_id = $1 ORDER BY seq`, conv)
	c.Must("read a log", err)
	for rows.Next() {
		var e logged
		c.Must("read an event", rows.Scan(&e.seq, &e.kind, &e.sender, &e.cmid, &e.body))
		events = append(events, e)
	}
	c.Must("read a log", rows.Err())
	return events
}

type logged struct {
	seq                      int64
	kind, sender, cmid, body string
}

// contiguousSQL is R2: how many conversations there are, and how many have a log with a hole or a wrong end.
const contiguousSQL = `SELECT count(*), count(*) FILTER (WHERE NOT (coalesce(e.n, 0) = c.next_seq - c.min_seq
		AND (e.n IS NULL OR (e.least = c.min_seq AND e.greatest = c.next_seq - 1))))
	FROM tidings.conversation c
	LEFT JOIN (SELECT conv_id, count(*) AS n, min(seq) AS least, max(seq) AS greatest FROM tidings.event GROUP BY conv_id) e ON e.conv_id = c.conv_id`

// contiguous tells how many logs were looked at, and how many of them break R2.
func (c *chat) contiguous() (logs, broken int) {
	c.Helper()
	c.Must("look at the logs", c.pool.QueryRow(c.ctx, contiguousSQL).Scan(&logs, &broken))
	return logs, broken
}
