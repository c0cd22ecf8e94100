// Tests of hellos, routes and gateways' leases.

package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// connection is the n-th connection id of a test.
func connection(n int) (id tidings.UUID) {
	id[0], id[14], id[15] = 1, byte(n>>8), byte(n)
	return id
}

// route reads the route of a device; a zero Version when it has none.
func (b *bench) route(user, device string) store.Route {
	b.t.Helper()
	for _, gateway := range []string{"g1", "g2"} {
		all, err := b.RoutesOf(b.t.Context(), gateway)
		b.must(err)
		if i := slices.IndexFunc(all, func(r store.Route) bool { return r.User == user && r.Device == device }); i >= 0 {
			return all[i]
		}
	}
	return store.Route{}
}

// A hello counts the connects of a device and its installs, and tells where the device was before.
func TestHello(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	before := one[time.Time](b, `SELECT clock_timestamp()`)
	for i, step := range []struct {
		install, gateway string
		want             store.HelloState
		code             tidings.Code
	}{
		{"i1", "g1", store.HelloState{InstallNo: 1, Version: 1}, ""},
		{"i1", "g2", store.HelloState{InstallNo: 1, Version: 2, OldGateway: "g1", OldConnection: connection(0)}, ""},
		{"i2", "g1", store.HelloState{InstallNo: 2, Version: 3, OldGateway: "g2", OldConnection: connection(1)}, ""},
		{"i1", "g2", store.HelloState{}, tidings.InstallReplaced},
		{"i2", "g2", store.HelloState{InstallNo: 2, Version: 4, OldGateway: "g1", OldConnection: connection(2)}, ""},
		{"i 3", "g2", store.HelloState{}, tidings.InvalidArgument},
		{"", "g2", store.HelloState{}, tidings.InvalidArgument},
	} {
		h, err := b.Hello(ctx, "ana", "d", step.install, step.gateway, connection(i))
		b.want(step.code, err)
		if err == nil && (h.Now.Before(before) || h.Now.After(one[time.Time](b, `SELECT clock_timestamp()`))) {
			t.Errorf("the time of the hello is %v", h.Now)
		}
		h.Now = time.Time{}
		if h != step.want {
			t.Errorf("hello %d: %+v, want %+v", i, h, step.want)
		}
	}
	if r, want := b.route("ana", "d"), (store.Route{User: "ana", Device: "d", Gateway: "g2", Connection: connection(4), Version: 4}); r != want {
		t.Errorf("the route is %+v", r)
	}
	// The newest 16 former installs are remembered, the older ones are as good as new.
	for i := 3; i <= 20; i++ {
		_, err := b.Hello(ctx, "ana", "d", fmt.Sprintf("i%d", i), "g1", connection(i))
		b.must(err)
	}
	for i := 4; i < 20; i++ {
		_, err := b.Hello(ctx, "ana", "d", fmt.Sprintf("i%d", i), "g1", connection(i))
		b.want(tidings.InstallReplaced, err)
	}
	if n := one[int](b, `SELECT cardinality(former) FROM tidings.device`); n != 16 {
		t.Errorf("%d former installs are remembered", n)
	}
	h, err := b.Hello(ctx, "ana", "d", "i3", "g1", connection(30))
	b.must(err)
	if h.InstallNo != 21 {
		t.Errorf("a forgotten install has the number %d", h.InstallNo)
	}
}

// Hellos of one device at once: each has its own version, exactly one finds no route before it, each other one the route of one of
// them, and the highest version is the route.
func TestHellosAtOnce(t *testing.T) {
	b := newBench(t)
	const n = 24
	states := make([]store.HelloState, n)
	failed := make([]error, n)
	atOnce(n, func(i int) {
		states[i], failed[i] = b.Hello(t.Context(), "ana", "d", "i1", fmt.Sprintf("g%d", i%2+1), connection(i+1))
	})
	b.must(errors.Join(failed...))
	replaced := map[tidings.UUID]int{}
	newest := 0
	for i, h := range states {
		replaced[h.OldConnection]++
		if h.Version > states[newest].Version {
			newest = i
		}
	}
	if len(replaced) != n || replaced[tidings.UUID{}] != 1 || replaced[connection(newest+1)] != 0 || states[newest].Version != n {
		t.Errorf("%d different connections were replaced, the newest is %+v", len(replaced), states[newest])
	}
	if r := b.route("ana", "d"); r.Version != n || r.Connection != connection(newest+1) {
		t.Errorf("the route is %+v", r)
	}
}

// In 1 000 random orders of hellos, late registrations and late closes on two gateways a device's route is that of its newest
// hello, or there is none when that was closed.
func TestRoutesInAnyOrder(t *testing.T) {
	b := newBench(t)
	const rounds, workers = 1000, 8
	failed := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for round := w; round < rounds && failed[w] == nil; round += workers {
				failed[w] = b.routesInOrder(fmt.Sprintf("u%d", round), round%2 == 0)
			}
		})
	}
	group.Wait()
	b.must(errors.Join(failed...))
}

func (b *bench) routesInOrder(user string, atOnce bool) error {
	ctx := b.t.Context()
	// Three connections have said hello. Each is registered late and closed late in any order; the newest is not closed half of the time.
	var routes []store.Route
	for i := range 3 {
		r := store.Route{User: user, Device: "d", Gateway: fmt.Sprintf("g%d", i%2+1), Connection: connection(i + 1)}
		h, err := b.Hello(ctx, user, "d", "i1", r.Gateway, r.Connection)
		if err != nil {
			return err
		}
		r.Version = h.Version
		routes = append(routes, r)
	}
	closed := rand.IntN(2) == 0
	var ops []func() error
	for i, r := range routes {
		last := i == len(routes)-1
		ops = append(ops, func() error {
			current, err := b.RegisterRoute(ctx, r)
			if err == nil && current != last {
				err = fmt.Errorf("registration %d of %s is current: %t", i, user, current)
			}
			return err
		})
		if !last {
			ops = append(ops, func() error { return b.CloseRoutes(ctx, []store.Route{r}) })
		}
	}
	rand.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	results := make([]error, len(ops))
	if atOnce {
		var group sync.WaitGroup
		for i, op := range ops {
			group.Go(func() { results[i] = op() })
		}
		group.Wait()
	} else {
		for i, op := range ops {
			results[i] = op()
		}
	}
	newest := routes[2]
	want := 1
	if closed {
		// Its own close ends it, and no older connection comes back.
		results = append(results, b.CloseRoutes(ctx, []store.Route{routes[1], newest, newest}))
		current, err := b.RegisterRoute(ctx, routes[1])
		if err == nil && current {
			err = errors.New("an older connection has come back")
		}
		results = append(results, err)
		want = 0
	}
	var n int
	err := b.pool.QueryRow(ctx, `SELECT count(*) FROM tidings.route WHERE user_id = $1 AND connection_id = $2 AND gateway_id = $3 AND version = $4`,
		user, newest.Connection, newest.Gateway, newest.Version).Scan(&n)
	if err == nil && n != want {
		err = fmt.Errorf("%s has %d routes to its newest connection, want %d", user, n, want)
	}
	return errors.Join(append(results, err)...)
}

// A gateway finds by one sum that it still owns what it thinks it owns.
func TestRoutesSum(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	var n, sum int64
	for i := range 20 {
		id := tidings.UUID{}
		for k := range id {
			id[k] = byte(rand.UintN(256))
		}
		_, err := b.Hello(ctx, fmt.Sprintf("u%d", i), "d", "i", "g1", id)
		b.must(err)
		n, sum = n+1, sum+store.RouteSum(id)
	}
	check := func(gateway string, n, sum int64) {
		t.Helper()
		gotN, gotSum, err := b.RoutesSum(ctx, gateway)
		b.must(err)
		if gotN != n || gotSum != sum {
			t.Errorf("%s has %d routes with the sum %d, want %d, %d", gateway, gotN, gotSum, n, sum)
		}
	}
	check("g1", n, sum)
	check("g2", 0, 0)
	old := b.route("u7", "d")
	_, err := b.Hello(ctx, "u7", "d", "i", "g2", connection(9))
	b.must(err)
	check("g1", n-1, sum-store.RouteSum(old.Connection))
	check("g2", 1, store.RouteSum(connection(9)))
}

// Routes go with the lease of their gateway: at once when it ends, by a sweep when it expires; the others stay.
func TestSweepOfExpiredGateways(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for _, g := range []string{"g1", "g2"} {
		b.must(b.RenewLease(ctx, g, time.Minute, g == "g2"))
		for i := range 3 {
			_, err := b.Hello(ctx, fmt.Sprintf("u%d", i), "at-"+g, "i", g, connection(i+10*int(g[1])))
			b.must(err)
		}
	}
	sweep := func(want int) {
		t.Helper()
		n, err := b.SweepRoutes(ctx)
		b.must(err)
		if n != want {
			t.Errorf("%d routes are swept, want %d", n, want)
		}
	}
	sweep(0)
	states, err := b.Gateways(ctx)
	b.must(err)
	if len(states) != 2 || states[0].Gateway != "g1" || states[0].Draining || !states[1].Draining || states[0].Left <= 0 || states[0].Left > time.Minute || states[0].Started.IsZero() {
		t.Errorf("the gateways are %+v", states)
	}
	b.exec(`UPDATE tidings.gateway SET lease_until = now() - interval '1 second' WHERE gateway_id = 'g1'`)
	old := b.route("u0", "at-g1")
	sweep(3)
	// A hello that was under way commits late: the next sweep finds it.
	_, err = b.Hello(ctx, "u0", "late", "i", "g1", connection(1))
	b.must(err)
	sweep(1)
	if states, err = b.Gateways(ctx); err != nil || len(states) != 2 || states[0].Left > 0 {
		t.Errorf("the gateways are %+v, %v", states, err)
	}
	// The paused gateway wakes up: it has lost its routes, and gets those again that nobody took meanwhile.
	b.must(b.RenewLease(ctx, "g1", time.Minute, false))
	if n, _, err := b.RoutesSum(ctx, "g1"); err != nil || n != 0 {
		t.Errorf("%d routes are left, %v", n, err)
	}
	current, err := b.RegisterRoute(ctx, old)
	b.must(err)
	if !current || b.route("u0", "at-g1") != old {
		t.Errorf("the route is not registered again")
	}
	sweep(0)
	b.exec(`UPDATE tidings.gateway SET lease_until = now() - interval '2 minutes' WHERE gateway_id = 'g1'`)
	sweep(1)
	if states, err = b.Gateways(ctx); err != nil || len(states) != 1 {
		t.Errorf("the gateways are %+v, %v", states, err)
	}
	b.must(b.EndGateway(ctx, "g2"))
	if n := one[int](b, `SELECT (SELECT count(*) FROM tidings.gateway) + (SELECT count(*) FROM tidings.route)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// Whoever renews while others sweep keeps its routes or has lost all of them, and only if its lease was over.
func TestSweepAgainstRenewal(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	for round := range 20 {
		b.exec(`DELETE FROM tidings.route`)
		b.must(b.RenewLease(ctx, "g1", time.Minute, false))
		for i := range 10 {
			_, err := b.Hello(ctx, fmt.Sprintf("u%d", i), "d", "i", "g1", connection(round*10+i))
			b.must(err)
		}
		b.exec(`UPDATE tidings.gateway SET lease_until = now() - interval '2 minutes'`)
		swept := make([]int, 4)
		failed := make([]error, 6)
		atOnce(6, func(i int) {
			switch {
			case i < 4:
				swept[i], failed[i] = b.SweepRoutes(ctx)
			case i == 4:
				failed[i] = b.RenewLease(ctx, "g1", time.Minute, false)
			default:
				all := []store.Route{}
				for k := range 10 {
					all = append(all, store.Route{User: fmt.Sprintf("u%d", k), Device: "d", Connection: connection(round*10 + k)})
				}
				rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				failed[i] = b.CloseRoutes(ctx, all[:5])
			}
		})
		b.must(errors.Join(failed...))
		n, _, err := b.RoutesSum(ctx, "g1")
		b.must(err)
		if total := slices.Max(swept); total != 0 && n != 0 || total == 0 && n != 5 {
			t.Fatalf("%v are swept and %d left", swept, n)
		}
		if states, err := b.Gateways(ctx); err != nil || len(states) != 1 || states[0].Left <= 0 {
			t.Fatalf("the gateways are %+v, %v", states, err)
		}
	}
}

// Floors only rise, and whoever asks since a time hears of each floor that was committed after it, also of one that began before.
func TestTokenFloors(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	floor := func() time.Time {
		t.Helper()
		f, err := b.TokenFloor(ctx, "ana")
		b.must(err)
		return f
	}
	if !floor().IsZero() {
		t.Errorf("there is a floor at %v", floor())
	}
	at := time.Date(2030, 5, 1, 12, 0, 0, 123000, time.UTC)
	b.must(b.RevokeTokens(ctx, "ana", at))
	if !floor().Equal(at) {
		t.Errorf("the floor is %v", floor())
	}
	b.must(b.RevokeTokens(ctx, "ana", at.Add(-time.Hour)))
	if !floor().Equal(at) {
		t.Errorf("the floor has sunk to %v", floor())
	}
	before := one[time.Time](b, `SELECT clock_timestamp()`)
	b.must(b.RevokeTokens(ctx, "ben", time.Time{}))
	all, now, err := b.TokenFloorsSince(ctx, time.Time{})
	b.must(err)
	slices.SortFunc(all, func(a, b store.Floor) int { return cmp.Compare(a.User, b.User) })
	if len(all) != 2 || all[0].User != "ana" || !all[0].NotBefore.Equal(at) || all[1].NotBefore.Before(before) || all[1].NotBefore.After(now) {
		t.Errorf("the floors are %v at %v", all, now)
	}
	// It began before now and commits after.
	tx, err := b.pool.Begin(ctx)
	b.must(err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, `INSERT INTO tidings.token_floor (bucket, user_id, not_before) VALUES (tidings.bucket_of('cat'), 'cat', now())`)
	b.must(err)
	_, now, err = b.TokenFloorsSince(ctx, now)
	b.must(err)
	b.must(tx.Commit(ctx))
	all, _, err = b.TokenFloorsSince(ctx, now)
	b.must(err)
	if !slices.ContainsFunc(all, func(f store.Floor) bool { return f.User == "cat" }) {
		t.Errorf("the late floor is missed: %v", all)
	}
	b.exec(`UPDATE tidings.token_floor SET set_at = set_at - interval '1 minute'`)
	if all, _, err = b.TokenFloorsSince(ctx, now); err != nil || len(all) != 0 {
		t.Errorf("old floors come again: %v, %v", all, err)
	}
	b.want(tidings.InvalidArgument, b.RevokeTokens(ctx, "", at))
}
