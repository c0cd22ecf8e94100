// Tests of outcomes that wait for a lock.

package gateway

import (
	"fmt"
	"testing"
	"time"
)

// Questions that wait for whoever holds a conversation take no reader from other sessions.
func TestOutcomesOfAHeldConversationHoldNobodyUp(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Readers = 2 })
	h.conversation("held", "ana")
	h.conversation("free", "ben")
	tx, err := h.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM tidings.conversation WHERE conv_id = 'held' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ben := h.login("ben", "b1")
	for i := range 2 {
		ana := h.login("ana", fmt.Sprint("a", i))
		for rid := range 4 {
			ana.text(`{"t":"outcome","rid":"o%d","conv":"held","cmid":"m"}`, rid)
		}
	}
	eventually(t, "an outcome waits for the lock", func() bool {
		var n int
		return h.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n) == nil && n > 0
	})
	began := time.Now()
	for range 3 {
		if f := ben.ask("sync", `"conv":"free","after":0`); f.T != "events" {
			t.Errorf("a sync is answered with %s", f.raw)
		}
	}
	if took := time.Since(began); took > 2*time.Second { // a lock is waited for for 5 s
		t.Errorf("syncs of another conversation took %v", took)
	}
}
