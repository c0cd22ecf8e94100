// Tests of the copying of the journal.

package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

// In any role a process copies what was taken back; when it cannot, the rest goes on and the gauge says so.
func TestJournal(t *testing.T) {
	for _, role := range []string{RoleAPI, RoleWorker, RoleGateway} {
		t.Run(role, func(t *testing.T) {
			cfg := config(t, pgtest.NewURL(t))
			cfg.Roles, cfg.OutsideDir = []string{role}, filepath.Join(t.TempDir(), "outside")
			cfg.TokenHS256Secret = Secret{Text: strings.Repeat("s", 32)}
			bad := cfg
			bad.OutsideDir = filepath.Join(cfg.OutsideDir, "not", "there")
			if _, err := New(t.Context(), bad, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "outside-dir") {
				t.Errorf("a start without the directory: %v", err)
			}
			r := start(t, cfg)
			s := r.Store()
			take := func(users ...string) {
				t.Helper()
				for _, u := range users {
					if _, err := s.Leave(t.Context(), "c-1", u, ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, err := s.CreateConversation(t.Context(), store.Conversation{Conv: "c-1", Members: []string{"u-1", "u-2", "u-3"}}); err != nil {
				t.Fatal(err)
			}
			until := func(what string, ok func() bool) {
				t.Helper()
				for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal(what)
					}
				}
			}
			lag := func() float64 {
				g, err := s.Gauges(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return g.JournalLag
			}
			copied := func() (users []string) {
				all, err := outside.ReadJournal(outside.JournalPath(cfg.OutsideDir))
				if err != nil && !os.IsNotExist(err) && !strings.Contains(err.Error(), "not a directory") && !strings.Contains(err.Error(), "no such file") {
					t.Fatal(err)
				}
				for _, x := range all {
					users = append(users, x.User)
				}
				return users
			}
			until("no file can be where the directory should be", func() bool { // the witness may make it once more
				return os.RemoveAll(cfg.OutsideDir) == nil && os.WriteFile(cfg.OutsideDir, nil, 0o600) == nil
			})
			take("u-1")
			until("the gauge does not grow", func() bool { return lag() > 0.7 })
			if err := os.Remove(cfg.OutsideDir); err != nil {
				t.Fatal(err)
			}
			until("it is not copied when it can be", func() bool { return len(copied()) == 1 && lag() == 0 })
			if status, _, text := get(t, r.URL()+"/metrics", r.key(t, store.ScopeMetrics)); status != 200 || !strings.Contains(text, "\ntidings_journal_lag_seconds 0\n") {
				t.Errorf("the metrics answer %d without the lag: %.200s", status, text)
			}
			// Taken away while it runs; what was taken back until the end is copied before it ends.
			if err := os.Rename(cfg.OutsideDir, cfg.OutsideDir+"-of-before"); err != nil {
				t.Fatal(err)
			}
			take("u-2", "u-3")
			r.stop()
			if err := r.wait(t); err != nil {
				t.Fatal(err)
			}
			if got := copied(); len(got) != 2 || got[0] != "u-2" || got[1] != "u-3" {
				t.Errorf("at the end the journal has %q", got)
			}
		})
	}
}
