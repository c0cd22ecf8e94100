// Tests of what operators see first, of gateways and of routes.

package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

func TestOverview(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	_, err := b.Overview(ctx)
	b.want(tidings.NotFound, err)
	b.must(b.EnsureLineage(ctx))
	o, err := b.Overview(ctx)
	if err != nil || o.Reviews != 0 || o.ReviewsOldestAt != nil || o.Gateways != 0 || o.Generation < 2 || o.Timeline < 1 || o.RecordedAt.IsZero() {
		t.Errorf("of an empty installation: %+v, %v", o, err)
	}
	oldest := b.parked("u-ana", "e1")
	b.parked("u-ben", "e2")
	b.must(b.RenewLease(ctx, "g1", time.Minute, false))
	b.must(b.RenewLease(ctx, "g2", time.Minute, true))
	b.exec(`INSERT INTO tidings.gateway VALUES ('dead', now() - interval '1 hour', now() - interval '1 second', false)`)
	o, err = b.Overview(ctx)
	if err != nil || o.Reviews != 2 || !o.ReviewsOldestAt.Equal(*oldest.DoubtAt) || o.Gateways != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestGatewaysAndRoutes(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	if items, err := b.FindGateways(ctx); items == nil || len(items) != 0 || err != nil {
		t.Errorf("without gateways: %v, %v", items, err)
	}
	b.must(b.RenewLease(ctx, "alive", time.Minute, false))
	b.must(b.RenewLease(ctx, "draining", time.Minute, true))
	b.must(b.RenewLease(ctx, "dead", time.Minute, false))
	for i, at := range []string{"alive", "draining", "dead", "alive"} {
		_, err := b.Hello(ctx, "ana", fmt.Sprint("d", i), "i1", at, connection(i))
		b.must(err)
	}
	_, err := b.Hello(ctx, "ben", "d", "i1", "alive", connection(9))
	b.must(err)
	_, err = b.Hello(ctx, "ana", "d0", "i2", "alive", connection(4)) // a new install, whose route replaces that of the former one
	b.must(err)
	b.must(b.CloseRoutes(ctx, []store.Route{{User: "ana", Device: "d3", Connection: connection(3)}}))
	b.exec(`UPDATE tidings.gateway SET lease_until = now() - interval '1 second' WHERE gateway_id = 'dead'`)
	// d1 has said a newer hello, whose route was not written.
	b.exec(`UPDATE tidings.device SET connects = connects + 1 WHERE user_id = 'ana' AND device_id = 'd1'`)

	gateways, err := b.FindGateways(ctx)
	b.must(err)
	var got []string
	for _, g := range gateways {
		got = append(got, fmt.Sprintf("%s %t %t %d", g.Gateway, g.Alive, g.Draining, g.Routes))
	}
	if want := []string{"alive true false 2", "dead false false 1", "draining true true 1"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	routes, more, err := b.RoutesOfUser(ctx, "ana")
	b.must(err)
	got = nil
	for _, r := range routes {
		connection := "-"
		if r.Connection != nil {
			connection = fmt.Sprint(r.Connection[15])
		}
		got = append(got, fmt.Sprint(r.Device, " install ", r.InstallNo, " at ", r.Gateway, " ", connection, " version ", r.Version, " ", r.Current))
	}
	want := []string{"d0 install 2 at alive 4 version 2 true", "d1 install 1 at draining 1 version 1 false", "d2 install 1 at dead 2 version 1 false", "d3 install 1 at  - version 1 false"}
	if !slices.Equal(got, want) || more {
		t.Errorf("%q, more: %t", got, more)
	}
	if routes, more, err := b.RoutesOfUser(ctx, "nobody"); routes == nil || len(routes) != 0 || more || err != nil {
		t.Errorf("of nobody: %v, %t, %v", routes, more, err)
	}
	b.exec(`INSERT INTO tidings.device (bucket, user_id, device_id, install_id) SELECT tidings.bucket_of('ana'), 'ana', 'e' || g, 'i' FROM generate_series(1, 197) g`)
	if routes, more, err := b.RoutesOfUser(ctx, "ana"); len(routes) != 200 || !more || err != nil {
		t.Errorf("of many devices: %d, %t, %v", len(routes), more, err)
	}
	_, _, err = b.RoutesOfUser(ctx, "a/b")
	b.want(tidings.InvalidArgument, err)
}
