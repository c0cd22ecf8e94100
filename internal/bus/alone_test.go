// What a sender does while nobody else listens.

package bus_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// While nobody else listens no NOTIFY carries anything. Whoever comes later hears what is told from then on, and catches up with what
// was not.
func TestNothingIsToldWhileNobodyListens(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmptyURL(t)
	wire, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close(t.Context())
	if _, err := wire.Exec(t.Context(), "LISTEN "+bus.Channel); err != nil {
		t.Fatal(err)
	}
	// heard reads what goes over the channel up to the next repetition of gw-a: how many payloads had items, and the last number.
	heard := func() (full int, last int64) {
		t.Helper()
		for {
			n, err := wire.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var p struct {
				Sender string `json:"g"`
				Number int64  `json:"n"`
				Items  []any  `json:"i"`
			}
			if err := json.Unmarshal([]byte(n.Payload), &p); err != nil {
				t.Fatal(err)
			}
			if p.Sender != "gw-a" {
				continue
			}
			if len(p.Items) == 0 {
				return full, p.Number
			}
			full++
		}
	}
	a := open(t, url, "gw-a")
	quiet, numbered := false, int64(0)
	for began, head := time.Now(), int64(1); time.Since(began) < patience && !quiet; head++ {
		a.Publish(bus.Wake{Conv: "c", Head: head})
		full, last := heard()
		quiet, numbered = full == 0 && last > numbered, last
	}
	if !quiet {
		t.Fatal("it tells although nobody listens, or its numbers do not say that something was not told")
	}
	b := open(t, url, "gw-b")
	b.await("it catches up with what was not told", bound, b.caughtUp("gw-a"))
	b.awaitHearing(a)
	b.stop() // with a goodbye
	for began, head := time.Now(), int64(100); ; head++ {
		a.Publish(bus.Wake{Conv: "c", Head: head})
		if full, _ := heard(); full == 0 {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("it goes on telling when the other has gone")
		}
	}
}
