// Which processes serve the operator console.

package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// Whoever serves the API serves the console, and nobody else does.
func TestConsoleComesWithTheAPI(t *testing.T) {
	cfg := config(t, pgtest.NewURL(t))
	cfg.Roles = []string{RoleAPI}
	r := start(t, cfg)
	if status, _, text := get(t, r.URL()+"/console"); status != http.StatusOK || !strings.Contains(text, "Sign in") {
		t.Errorf("an API answers /console with %d", status)
	}
	if status, _, text := get(t, r.URL()+"/console/nothing"); status != http.StatusOK || !strings.Contains(text, "Sign in") {
		t.Errorf("an API answers /console/nothing with %d", status)
	}
	cfg.Roles = []string{RoleWorker}
	if status, _, _ := get(t, start(t, cfg).URL()+"/console"); status != http.StatusNotFound {
		t.Errorf("a worker answers /console with %d", status)
	}
}
