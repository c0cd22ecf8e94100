// Routes and gateways' leases.

package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Route is the connection that a device is at.
type Route struct {
	User, Device, Gateway string
	Connection            tidings.UUID
	Version               int64 // the number of the device's hello that it comes from
}

// registerRouteSQL registers a route again, by primary keys, if it comes from the device's newest hello (R7): the row of the device is locked,
// so that a hello at the same time comes before or after.
const registerRouteSQL = `WITH newest AS MATERIALIZED (
		SELECT d.bucket, d.user_id, d.device_id FROM tidings.device d
		 WHERE d.user_id = @user::text AND d.device_id = @device::text AND d.bucket = @bucket::smallint AND d.connects = @version::bigint FOR NO KEY UPDATE
	)
	INSERT INTO tidings.route AS r (bucket, user_id, device_id, gateway_id, connection_id, version)
	SELECT n.bucket, n.user_id, n.device_id, @gateway::text, @connection::uuid, @version::bigint FROM newest n
	ON CONFLICT (user_id, device_id, bucket) DO UPDATE SET gateway_id = excluded.gateway_id, connection_id = excluded.connection_id, version = excluded.version
	 WHERE r.version < excluded.version OR r.version = excluded.version AND r.connection_id = excluded.connection_id`

// RegisterRoute registers the route of an earlier hello again, for a gateway that has lost its lease and got it back. It tells whether the
// route is the device's current one; otherwise a newer connection was made meanwhile, even if that is over too.
func (s *Store) RegisterRoute(ctx context.Context, r Route) (current bool, err error) {
	args := pgx.NamedArgs{"user": r.User, "device": r.Device, "bucket": tidings.Bucket(r.User), "gateway": r.Gateway, "connection": r.Connection, "version": r.Version}
	return s.changed(ctx, "register a route", registerRouteSQL, args)
}

// closeRoutesSQL deletes routes by primary key, and each only if it is still that of the connection (R7). They are locked in the order of
// their keys.
const closeRoutesSQL = `WITH closed AS MATERIALIZED (
		SELECT r.user_id, r.device_id, r.bucket FROM tidings.route r
		  JOIN unnest(@users::text[], @devices::text[], @buckets::smallint[], @connections::uuid[]) x (usr, device, bucket, connection)
		    ON r.user_id = x.usr AND r.device_id = x.device AND r.bucket = x.bucket AND r.connection_id = x.connection
		 WHERE r.user_id = ANY (@users::text[]) AND r.bucket = ANY (@buckets::smallint[])
		 ORDER BY r.user_id, r.device_id FOR UPDATE OF r
	)
	DELETE FROM tidings.route r USING closed c WHERE r.user_id = c.user_id AND r.device_id = c.device_id AND r.bucket = c.bucket`

// CloseRoutes deletes the routes of connections that have ended (of each: User, Device and Connection). A route that has passed to a newer
// connection stays.
func (s *Store) CloseRoutes(ctx context.Context, connections []Route) error {
	if len(connections) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(connections), func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Device, b.Device), slices.Compare(a.Connection[:], b.Connection[:]))
	})
	var users, devices []string
	var buckets []int16
	var ids []tidings.UUID
	for _, r := range slices.Compact(sorted) {
		users, devices, buckets, ids = append(users, r.User), append(devices, r.Device), append(buckets, tidings.Bucket(r.User)), append(ids, r.Connection)
	}
	args := pgx.NamedArgs{"users": users, "devices": devices, "buckets": buckets, "connections": ids}
	return s.write(ctx, "close routes", func(ctx context.Context) error {
		_, err := rowsByKey(ctx, s, closeRoutesSQL, args, pgx.RowTo[int64])
		return err
	})
}

// routesSumSQL adds up what RouteSum gives for each connection of a gateway, through route_gateway.
const routesSumSQL = `SELECT count(*), coalesce(sum(('x' || right(r.connection_id::text, 10))::bit(40)::bigint), 0)::bigint
	  FROM tidings.route r WHERE r.gateway_id = @gateway::text AND r.bucket = ANY (@buckets::smallint[])`

// RoutesSum is the number of a gateway's routes and the sum of RouteSum over their connections. A gateway compares it with its own to see
// whether it still owns them all.
func (s *Store) RoutesSum(ctx context.Context, gateway string) (n, sum int64, err error) {
	err = s.pool.QueryRow(ctx, routesSumSQL, pgx.NamedArgs{"gateway": gateway, "buckets": s.buckets}).Scan(&n, &sum)
	return n, sum, unchanged("add up the routes of a gateway", err)
}

// RouteSum is a connection's part of RoutesSum: its last 40 bits, so that the sum over millions stays within 63.
func RouteSum(connection tidings.UUID) (sum int64) {
	for _, b := range connection[11:] {
		sum = sum<<8 | int64(b)
	}
	return sum
}

// routesSQL reads a gateway's routes through route_gateway.
const routesSQL = `SELECT r.user_id, r.device_id, r.gateway_id, r.connection_id, r.version FROM tidings.route r
	 WHERE r.gateway_id = @gateway::text AND r.bucket = ANY (@buckets::smallint[])`

// RoutesOf reads the routes of a gateway.
func (s *Store) RoutesOf(ctx context.Context, gateway string) ([]Route, error) {
	all, err := rowsByKey(ctx, s, routesSQL, pgx.NamedArgs{"gateway": gateway, "buckets": s.buckets}, func(row pgx.CollectableRow) (r Route, err error) {
		err = row.Scan(&r.User, &r.Device, &r.Gateway, (*[16]byte)(&r.Connection), &r.Version)
		return r, err
	})
	return all, unchanged("read the routes of a gateway", err)
}

// GatewayState is a gateway as its row tells.
type GatewayState struct {
	Gateway  string
	Started  time.Time
	Left     time.Duration // until its lease ends; not positive when it has ended
	Draining bool
}

// gatewaysSQL reads the table of gateways, which has a row for each process.
const gatewaysSQL = `SELECT g.gateway_id, g.started_at, (date_part('epoch', g.lease_until - statement_timestamp()) * 1000000)::bigint, g.draining
	  FROM tidings.gateway g ORDER BY g.gateway_id`

// Gateways reads all gateways that have not ended and were not swept.
func (s *Store) Gateways(ctx context.Context) ([]GatewayState, error) {
	rows, err := s.pool.Query(ctx, gatewaysSQL)
	if err != nil {
		return nil, unchanged("read the gateways", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (g GatewayState, err error) {
		var micros int64
		err = row.Scan(&g.Gateway, &g.Started, &micros, &g.Draining)
		g.Left = time.Duration(micros) * time.Microsecond
		return g, err
	})
	return all, unchanged("read the gateways", err)
}

// renewLeaseSQL writes a gateway's lease by primary key.
const renewLeaseSQL = `INSERT INTO tidings.gateway AS g (gateway_id, lease_until, draining)
	SELECT @gateway::text, statement_timestamp() + @lease_ms::bigint * interval '1 millisecond', @draining::boolean
	ON CONFLICT (gateway_id) DO UPDATE SET lease_until = excluded.lease_until, draining = excluded.draining`

// RenewLease makes a gateway's lease end after the given time from now, by the database's clock. A gateway that was swept gets its row
// again, but not its routes. It is given up after a third of the lease, so that a connection that hangs does not cost the whole of it.
func (s *Store) RenewLease(ctx context.Context, gateway string, lease time.Duration, draining bool) error {
	return s.writeWithin(ctx, min(lease/3, commitTimeout), "renew a gateway's lease", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, renewLeaseSQL, pgx.NamedArgs{"gateway": gateway, "lease_ms": lease.Milliseconds(), "draining": draining})
		return err
	})
}

// endGatewaySQL deletes a gateway by primary key and its routes through route_gateway, in the order of their keys.
const endGatewaySQL = `WITH ended AS (
		DELETE FROM tidings.gateway g WHERE g.gateway_id = @gateway::text
	), owned AS MATERIALIZED (
		SELECT r.user_id, r.device_id, r.bucket FROM tidings.route r
		 WHERE r.gateway_id = @gateway::text AND r.bucket = ANY (@buckets::smallint[]) ORDER BY r.user_id, r.device_id FOR UPDATE
	)
	DELETE FROM tidings.route r USING owned o WHERE r.user_id = o.user_id AND r.device_id = o.device_id AND r.bucket = o.bucket`

// EndGateway deletes a gateway that has ended, and the routes that it still has. No hello of it may be under way.
func (s *Store) EndGateway(ctx context.Context, gateway string) error {
	_, err := s.changed(ctx, "end a gateway", endGatewaySQL, pgx.NamedArgs{"gateway": gateway, "buckets": s.buckets})
	return err
}

// sweepSQL deletes the routes of gateways whose lease has ended, through route_gateway. Their rows are locked, so that none renews
// meanwhile, and stay for a minute: a hello that is under way commits its route within that time, and the next sweep finds it.
const sweepSQL = `WITH expired AS MATERIALIZED (
		SELECT g.gateway_id, g.lease_until < statement_timestamp() - interval '1 minute' AS over FROM tidings.gateway g
		 WHERE g.lease_until < statement_timestamp() ORDER BY g.gateway_id FOR UPDATE SKIP LOCKED
	), ended AS (
		DELETE FROM tidings.gateway g USING expired x WHERE g.gateway_id = x.gateway_id AND x.over
	), owned AS MATERIALIZED (
		SELECT r.user_id, r.device_id, r.bucket FROM tidings.route r JOIN expired x ON x.gateway_id = r.gateway_id
		 WHERE r.bucket = ANY (@buckets::smallint[]) ORDER BY r.user_id, r.device_id FOR UPDATE OF r
	)
	DELETE FROM tidings.route r USING owned o WHERE r.user_id = o.user_id AND r.device_id = o.device_id AND r.bucket = o.bucket
	RETURNING r.version`

// SweepRoutes deletes the routes of gateways whose lease has ended, and a minute later their rows. It returns the number of routes. A
// gateway that was only paused sees by RoutesSum that it has lost them.
func (s *Store) SweepRoutes(ctx context.Context) (n int, err error) {
	err = s.write(ctx, "sweep the routes of expired gateways", func(ctx context.Context) error {
		swept, err := rowsByKey(ctx, s, sweepSQL, pgx.NamedArgs{"buckets": s.buckets}, pgx.RowTo[int64])
		n = len(swept)
		return err
	})
	return n, err
}
