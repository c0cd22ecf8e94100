// The check 10-late-old-route-rejected, and the control 10-control-unversioned-route.

package lab_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "10-late-old-route-rejected",
		Expect: "a gateway that has lost a device's route registers it again, held on the way until the device has connected to another, and once more waiting for a lock behind that connect: " +
			"the older connection is closed with 4404 and the newer route stays, nothing older is written over it; in 1 000 random interleavings of connects, lost routes and delays at two gateways no older " +
			"registration is ever written, and one owner is left each time",
		Run: lateRegistration,
	})
	lab.Register(lab.Check{
		ID:     "10-control-unversioned-route",
		Expect: "an older registration is held on the way until the newer one is written: with versions the newer one stays, without them the late one steals the route",
		Run:    unversionedRoute,
	})
}

// registersAgain is the statement by which a gateway registers a route that it has lost.
var registersAgain = pgproxy.Runs("with newest as materialized")

// saysHello is the statement by which a gateway counts a connect of a device; the route follows in the same transaction.
var saysHello = pgproxy.Runs("insert into tidings.device as d")

// auditRoutes keeps of every route that is written which version it has and which the device's newest is.
func (c *chat) auditRoutes() {
	c.Helper()
	c.exec(`CREATE TABLE tidings.lab_written (user_id text, version bigint, newest bigint, again boolean)`)
	c.exec(`CREATE FUNCTION tidings.lab_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO tidings.lab_written SELECT NEW.user_id, NEW.version, d.connects, current_query() ILIKE '%newest AS MATERIALIZED%'
		  FROM tidings.device d WHERE d.user_id = NEW.user_id AND d.device_id = NEW.device_id;
		RETURN NEW; END $$`)
	c.exec(`CREATE TRIGGER lab_write AFTER INSERT OR UPDATE ON tidings.route FOR EACH ROW EXECUTE FUNCTION tidings.lab_write()`)
}

// written is how many routes were written, how many of them again, and how many of them were older than the device's newest.
func (c *chat) written() (all, again, thefts int) {
	c.Helper()
	c.Must("read the audit", c.pool.QueryRow(c.ctx, `SELECT count(*), count(*) FILTER (WHERE again), count(*) FILTER (WHERE version < newest) FROM tidings.lab_written`).Scan(&all, &again, &thefts))
	return all, again, thefts
}

// sweeps takes a device's route away, as the sweep of a gateway does that was taken for dead.
func (c *chat) sweeps(user string) {
	_, err := c.pool.Exec(c.ctx, `DELETE FROM tidings.route WHERE user_id = $1`, user)
	if err != nil {
		c.Errorf("sweep a route: %v", err)
	}
}

func lateRegistration(t *lab.T) {
	c := newChat(t)
	ways := []*pgproxy.Proxy{c.proxy(), c.proxy()}
	lease := with("TIDINGS_GATEWAY_LEASE", "4500ms") // renewed every 1.5 s
	a, b := c.node("a", lease, through(ways[0])), c.node("b", lease, through(ways[1]))
	c.auditRoutes()

	// On the way.
	old := a.device("ana", "ana-1")
	trap := ways[0].Arm(pgproxy.Rule{What: "the older registration", Match: registersAgain, When: pgproxy.Before, Do: pgproxy.Hold})
	c.sweeps("ana")
	c.Fault(trap.Wait(soon))
	fresh := b.device("ana", "ana-1")
	now := c.routes("ana")
	trap.Release()
	c.Equal("held on the way: the older connection is closed with", 4404, old.closed(soon).num("close"))
	c.Equal("held on the way: the route", now, c.routes("ana"))
	c.Equal("held on the way: the newer connection lives", "conversations", fresh.ask(frame{"t": "conversations"}).t())
	_, again, _ := c.written()
	c.Equal("held on the way: older registrations that were written", 0, again)

	// In the database, behind the newer one.
	old = a.device("ben", "ben-1")
	leave := c.obstruct("hold a device", `SELECT FROM tidings.device WHERE user_id = 'ben' FOR UPDATE`)
	newer, _, err := b.open()
	c.Must("open a WebSocket", err)
	rid := newer.send(frame{"t": "hello", "token": token("ben"), "device": "ben-1", "install": "ben-1-install", "client": "lab"})
	c.waits(1, "INSERT INTO tidings.device AS d")
	c.sweeps("ben")
	c.waits(1, "newest AS MATERIALIZED")
	leave()
	c.Equal("held by a lock: the newer connection", "welcome", newer.reply(rid).t())
	c.Equal("held by a lock: the older connection is closed with", 4404, old.closed(soon).num("close"))
	c.Equal("held by a lock: the route", []string{newer.reply(rid).str("connection")}, c.routes("ben"))
	_, again, thefts := c.written() // the database may let the older one go first: then it is no older one yet
	c.Equal("held by a lock: registrations that were older than the newest connect when they were written", 0, thefts)
	c.Note("waiting for the lock, the older registration was written before the newer connect %d times of 1", again)

	c.interleave([]*node{a, b}, ways)
	c.exec(`UPDATE tidings.route SET version = version - 1 WHERE user_id = 'ana'`)
	_, _, found := c.written()
	c.Equal("an older registration that the check itself writes is found", 1, found)
}

// waits waits until n statements that contain a text wait for a lock.
func (c *chat) waits(n int, text string) {
	c.Helper()
	c.Until(fmt.Sprintf("%d statements with %q wait for a lock", n, text), soon, func() bool {
		return one[int](c.scene, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND pid <> pg_backend_pid() AND position($1 IN query) > 0`, text) >= n
	})
}

// interleave lets devices connect to both gateways at about the same time, again and again, while some routes are swept and connects
// and registrations are held for a while.
func (c *chat) interleave(nodes []*node, ways []*pgproxy.Proxy) {
	c.Helper()
	const users, rounds = 16, 63
	var again, waiting atomic.Int64
	for _, way := range ways { // these rules never match: they count
		way.Arm(pgproxy.Rule{What: "nothing", When: pgproxy.Before, Do: pgproxy.Cut, Match: func(m pgproxy.Message) bool {
			if registersAgain(m) {
				again.Add(1)
			}
			return false
		}})
	}
	ctx, stop := context.WithCancel(c.ctx)
	held := make(chan struct{})
	seed := c.Rand().Uint64()
	go func() { // waited for below
		defer close(held)
		for r := random(seed, users); ctx.Err() == nil; pauseABit() {
			if waiting.Load() > 8 {
				continue
			}
			for _, way := range ways {
				waiting.Add(1)
				trap := way.Arm(pgproxy.Rule{What: "a connect or a registration", When: pgproxy.Before, Do: pgproxy.Hold, Match: func(m pgproxy.Message) bool {
					matches := saysHello(m) || registersAgain(m)
					if matches {
						waiting.Add(-1)
					}
					return matches
				}})
				time.AfterFunc(time.Duration(r.IntN(20))*time.Millisecond, trap.Release)
			}
		}
	}()
	began := time.Now()
	var done, lost atomic.Int64
	c.Together("devices that connect", users, func(i int) {
		r := random(seed, uint64(i))
		d := &restless{c: c, user: fmt.Sprint("user-", i), nodes: nodes}
		for range rounds {
			if !d.round(r) {
				return
			}
			done.Add(1)
		}
		lost.Add(int64(d.lost))
	})
	stop()
	<-held
	all, rewritten, thefts := c.written()
	c.Equal("interleavings", users*rounds, done.Load())
	c.Equal("older registrations that were written in them", 0, thefts)
	c.Equal("devices with another route than that of their newest connect", 0, one[int](c.scene, `SELECT count(*) FROM tidings.route r
		JOIN tidings.device d ON d.user_id = r.user_id AND d.device_id = r.device_id WHERE r.version <> d.connects`))
	c.Examined("written routes", all)
	c.Figure("interleavings", float64(done.Load()), "")
	c.Figure("of them with a swept route", float64(lost.Load()), "")
	c.Figure("registrations again", float64(again.Load()), "")
	c.Figure("of them refused", float64(again.Load()-int64(rewritten)), "")
	c.Figure("they took", time.Since(began).Seconds(), "s")
	c.True("some registrations came too late", again.Load() > int64(rewritten))
}

// registerSQL registers a route, by the product's rule for versions.
const registerSQL = `INSERT INTO tidings.route AS r (bucket, user_id, device_id, gateway_id, connection_id, version)
	VALUES (tidings.bucket_of('ana'), 'ana', 'ana-1', $1, gen_random_uuid(), $2)
	ON CONFLICT (user_id, device_id, bucket) DO UPDATE SET gateway_id = excluded.gateway_id, connection_id = excluded.connection_id, version = excluded.version
	 WHERE r.version < excluded.version`

// registerNaivelySQL does it without one: the last writer wins.
const registerNaivelySQL = `INSERT INTO naive_route AS r (device_id, gateway_id, version) VALUES ('ana-1', $1, $2)
	ON CONFLICT (device_id) DO UPDATE SET gateway_id = excluded.gateway_id, version = excluded.version`

func unversionedRoute(t *lab.T) {
	c := newChat(t)
	c.exec(`CREATE TABLE naive_route (device_id text PRIMARY KEY, gateway_id text NOT NULL, version bigint NOT NULL)`)
	way := c.proxy()
	slow, err := pgx.Connect(c.ctx, way.URL())
	c.Must("connect", err)
	defer slow.Close(c.ctx)
	late := func(sql, table string) string {
		c.Helper()
		trap := way.Arm(pgproxy.Rule{What: "the older registration", Match: pgproxy.Runs(sql), When: pgproxy.Before, Do: pgproxy.Hold})
		older := make(chan error, 1)
		go func() { // received below
			_, err := slow.Exec(c.ctx, sql, "the older gateway", 1)
			older <- err
		}()
		c.Fault(trap.Wait(soon))
		c.Equal("routes that the newer registration writes", 1, c.exec(sql, "the newer gateway", 2))
		trap.Release()
		c.Must("register late", <-older)
		return one[string](c.scene, `SELECT gateway_id FROM `+table)
	}
	guarded := late(registerSQL, "tidings.route")
	c.Equal("the route, with versions", "the newer gateway", guarded)
	c.Exposed("the route, without", guarded, late(registerNaivelySQL, "naive_route"))
}
