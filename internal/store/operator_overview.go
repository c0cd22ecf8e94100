// What an operator sees first: waiting reviews, living gateways, the lineage; and where a user's devices are.

package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
)

// Overview is how an installation is doing.
type Overview struct {
	Reviews         int // tasks that wait for a person; the count stops at 10 001, which means more than 10 000
	ReviewsOldestAt *time.Time
	Gateways        int // that are alive
	Generation      int64
	Timeline        int64
	RecordedAt      time.Time // when the lineage was recorded
}

// overviewSQL counts parked tasks and finds the oldest doubt through task_review, and reads the small tables gateway and lineage.
const overviewSQL = `SELECT
	(SELECT count(*) FROM (SELECT FROM tidings.task t WHERE t.needs_review AND t.bucket = ANY (@buckets::smallint[]) ORDER BY t.doubt_at LIMIT @most::bigint) parked),
	(SELECT t.doubt_at FROM tidings.task t WHERE t.needs_review AND t.bucket = ANY (@buckets::smallint[]) ORDER BY t.doubt_at LIMIT 1),
	(SELECT count(*) FROM tidings.gateway g WHERE g.lease_until > statement_timestamp()), l.generation, l.timeline, l.recorded_at
	FROM tidings.lineage l WHERE l.node = @node::text`

// Overview reads it. The error is NOT_FOUND before EnsureLineage.
func (s *Store) Overview(ctx context.Context) (o Overview, err error) {
	args := pgx.NamedArgs{"buckets": s.buckets, "most": countLimit, "node": node}
	err = s.byIndex(ctx, overviewSQL, args, func(rows pgx.Rows) (err error) {
		o, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Overview])
		return err
	}, nil)
	return o, unchanged("read the overview", err)
}

// GatewayItem is a gateway with its routes.
type GatewayItem struct {
	Gateway    string    `json:"gateway"`
	Alive      bool      `json:"alive" doc:"Its lease has not ended."`
	Draining   bool      `json:"draining"`
	LeaseUntil time.Time `json:"lease_until"`
	Routes     int       `json:"routes" doc:"Devices that are connected to it. The count stops at 10001, which means more than 10000."`
}

// shownGateways and shownRoutes bound what an operator is shown.
const (
	shownGateways = 500
	shownRoutes   = 200
)

// gatewayItemsSQL reads the small table of gateways.
const gatewayItemsSQL = `SELECT g.gateway_id, g.lease_until > statement_timestamp(), g.draining, g.lease_until FROM tidings.gateway g
	 ORDER BY g.gateway_id LIMIT @limit::bigint`

// routesCountSQL counts a gateway's routes through route_gateway.
const routesCountSQL = `SELECT count(*) FROM (SELECT FROM tidings.route r
	 WHERE r.gateway_id = @gateway::text AND r.bucket = ANY (@buckets::smallint[]) LIMIT @most::bigint) counted`

// FindGateways reads the gateways that have not ended and were not swept, by name, at most 500.
func (s *Store) FindGateways(ctx context.Context) ([]GatewayItem, error) {
	items, err := rowsByKey(ctx, s, gatewayItemsSQL, pgx.NamedArgs{"limit": shownGateways}, func(row pgx.CollectableRow) (g GatewayItem, err error) {
		err = row.Scan(&g.Gateway, &g.Alive, &g.Draining, &g.LeaseUntil)
		return g, err
	})
	if err != nil || len(items) == 0 {
		return []GatewayItem{}, unchanged("read the gateways", err)
	}
	batch := &pgx.Batch{}
	var read []func(pgx.Rows) error
	for i := range items {
		batch.Queue(routesCountSQL, pgx.NamedArgs{"gateway": items[i].Gateway, "buckets": s.buckets, "most": countLimit})
		read = append(read, func(rows pgx.Rows) (err error) {
			items[i].Routes, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			return err
		})
	}
	return items, unchanged("count the routes of gateways", s.byKey(ctx, batch, read...))
}

// DeviceRoute is a device with the connection that it is at.
type DeviceRoute struct {
	Device     string        `json:"device"`
	InstallNo  int64         `json:"install_no" doc:"Number of the current install."`
	Gateway    string        `json:"gateway,omitempty" doc:"Absent: it is not connected."`
	Connection *tidings.UUID `json:"connection,omitempty"`
	Version    int64         `json:"version" doc:"Number of the hello that the route is from; without a route of the newest one."`
	Current    bool          `json:"current" doc:"The route is of the device's newest hello, and its gateway is alive."`
}

// routesOfUserSQL reads a user's devices through their primary key, their routes by the same key, and the gateways of those by theirs.
const routesOfUserSQL = `SELECT d.device_id, d.install_no, coalesce(r.gateway_id, ''), r.connection_id, coalesce(r.version, d.connects),
		coalesce(r.version = d.connects AND g.lease_until > statement_timestamp(), false)
	  FROM tidings.device d
	  LEFT JOIN tidings.route r ON r.user_id = @user::text AND r.device_id = d.device_id AND r.bucket = @bucket::smallint
	  LEFT JOIN tidings.gateway g ON g.gateway_id = r.gateway_id
	 WHERE d.user_id = @user::text AND d.bucket = @bucket::smallint ORDER BY d.device_id LIMIT @limit::bigint`

// RoutesOfUser reads where a user's devices are, by device, at most 200; more tells that there are more. A user whom nobody knows has none.
func (s *Store) RoutesOfUser(ctx context.Context, user string) (routes []DeviceRoute, more bool, err error) {
	if err := tidings.CheckID("user", user); err != nil {
		return nil, false, err
	}
	args := pgx.NamedArgs{"user": user, "bucket": tidings.Bucket(user), "limit": shownRoutes + 1}
	routes, err = rowsByKey(ctx, s, routesOfUserSQL, args, pgx.RowToStructByPos[DeviceRoute])
	if more = len(routes) > shownRoutes; more {
		routes = routes[:shownRoutes]
	}
	return routes, more, unchanged("read the routes of a user", err)
}
