// Tests of a conversation's settings.

package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/api"
)

// Left out, null and a number are three things: the server's default, for ever, so long.
func TestRetentionOfACreation(t *testing.T) {
	s := newScene(t)
	stored := func(conv string) string {
		t.Helper()
		var keep *int64
		if err := s.pool.QueryRow(t.Context(), "SELECT retention_ms FROM tidings.conversation WHERE conv_id = $1", conv).Scan(&keep); err != nil {
			t.Fatal(err)
		}
		if keep == nil {
			return "for ever"
		}
		return fmt.Sprint(*keep)
	}
	for _, server := range []struct {
		retention time.Duration
		byDefault string
	}{{0, "for ever"}, {time.Hour, "3600000"}, {90 * time.Minute, "5400000"}} {
		s.serve(func(c *api.Config) { c.Retention = server.retention })
		for i, c := range []struct{ body, want string }{{`{}`, server.byDefault}, {`{"retention_ms":null}`, "for ever"}, {`{"retention_ms":5}`, "5"}} {
			path := fmt.Sprintf("/v1/conversations/c-%d-%d", server.retention, i)
			s.by(201, "PUT", path, c.body)
			if got := stored(fmt.Sprintf("c-%d-%d", server.retention, i)); got != c.want {
				t.Errorf("%s with the default %v: kept %s, want %s", c.body, server.retention, got, c.want)
			}
			s.by(200, "PUT", path, c.body)
		}
		// What is not asked for is not compared: the server's default may be another by now.
		s.by(200, "PUT", "/v1/conversations/c-0-2", `{}`)
		s.by(409, "PUT", "/v1/conversations/c-0-2", `{"retention_ms":null}`)
		s.by(409, "PUT", "/v1/conversations/c-0-2", `{"retention_ms":6}`)
		s.by(409, "PUT", "/v1/conversations/c-0-1", `{"retention_ms":5}`)
	}
	for _, bad := range []string{`{"retention_ms":0}`, `{"retention_ms":"1"}`, `{"retention_ms":1.5}`, `{"retention_ms":3153600000001}`, `{"retention_ms":{}}`} {
		if a := s.by(400, "PUT", "/v1/conversations/c-bad", bad); a.code() != "INVALID_ARGUMENT" {
			t.Errorf("%s: %s", bad, a.text)
		}
		s.by(400, "PATCH", "/v1/conversations/c-0-2", bad)
	}
}

func TestChangeSettings(t *testing.T) {
	s := newScene(t)
	const path = "/v1/conversations/c-g"
	s.by(404, "PATCH", path, `{}`)
	s.by(201, "PUT", path, `{"members":["u-ana"],"retention_ms":3600000}`)
	for _, c := range []struct {
		body           string
		window, retain any
	}{
		{`{}`, 120000.0, 3600000.0},
		{`{"retention_ms":7200000}`, 120000.0, 7200000.0},
		{`{"recall_window_ms":0}`, 0.0, 7200000.0},
		{`{"retention_ms":null,"recall_window_ms":1000}`, 1000.0, nil},
		{`{}`, 1000.0, nil},
		{`{"retention_ms":1,"recall_window_ms":null}`, 1000.0, 1.0},
	} {
		a := s.by(200, "PATCH", path, c.body)
		kept, there := a.body["retention_ms"]
		if a.body["conv"] != "c-g" || a.body["recall_window_ms"] != c.window || !there || kept != c.retain {
			t.Errorf("%s: %s", c.body, a.text)
		}
	}
	s.by(200, "PUT", path, `{"members":["u-ana"]}`)
	s.by(200, "PUT", path, `{"members":["u-ana"],"retention_ms":1,"recall_window_ms":1000}`)
	s.by(409, "PUT", path, `{"members":["u-ana"],"retention_ms":3600000}`)
}

// A setting that is in the body twice, or in another spelling, does not get by its bounds.
func TestSettingsInOtherSpellings(t *testing.T) {
	s := newScene(t)
	const path = "/v1/conversations/c-g"
	s.by(201, "PUT", path, `{"members":["u-ana"],"retention_ms":3600000}`)
	for _, bad := range []string{
		`{"retention_ms":500000,"RETENTION_MS":18446744073711}`,
		`{"RETENTION_MS":18446744073711,"retention_ms":500000}`,
		`{"retention_ms":500000,"retention_ms":18446744073711}`,
		`{"retention_ms":500000,"retention_m\u017f":18446744073711}`,
		`{"RETENTION_MS":18446744073711}`,
		`{"retention_ms":500000,"Retention_ms":500000}`,
		`{"recall_window_ms":1000,"Recall_Window_ms":18446744073711}`,
		`{"retention_ms":500000,"other":[{"a":1,"A":2}]}`,
	} {
		for _, method := range []string{"PATCH", "PUT"} {
			if a := s.by(400, method, path, bad); a.code() != "INVALID_ARGUMENT" {
				t.Errorf("%s %s: %s", method, bad, a.text)
			}
		}
	}
	if a := s.by(200, "PATCH", path, `{"other":{"data":{"a":1,"A":2}}}`); a.body["retention_ms"] != 3600000.0 || a.body["recall_window_ms"] != 120000.0 {
		t.Errorf("afterwards: %s", a.text)
	}
}
