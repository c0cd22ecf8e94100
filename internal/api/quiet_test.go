// Tests of quiet hours, mutes, and a conversation's settings for notifications.

package api_test

import (
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/api"
)

func TestQuietHours(t *testing.T) {
	f := newFixture(t)
	const path = "/v1/users/u-ana/quiet"
	f.want(404, "GET", path, "")
	f.want(404, "DELETE", path, "")
	for range 2 {
		a := f.want(200, "PUT", path, `{"zone":"Europe/Berlin","from":"22:00","to":"07:30"}`)
		if a.body["zone"] != "Europe/Berlin" || a.body["from"] != "22:00" || a.body["to"] != "07:30" {
			t.Error(a.text)
		}
	}
	if a := f.want(200, "GET", path, ""); a.body["zone"] != "Europe/Berlin" || a.body["from"] != "22:00" || a.body["to"] != "07:30" {
		t.Error(a.text)
	}
	for _, bad := range []string{`{}`, `{"zone":"Europe/Atlantis","from":"22:00","to":"07:00"}`, `{"zone":"UTC","from":"22:00","to":"22:00"}`, `{"zone":"UTC","from":"24:00","to":"07:00"}`,
		`{"zone":"UTC","from":"22:00","to":"7:00"}`, `{"zone":"","from":"22:00","to":"07:00"}`, `{"zone":5,"from":"22:00","to":"07:00"}`} {
		if a := f.want(400, "PUT", path, bad); a.code() != "INVALID_ARGUMENT" {
			t.Errorf("%s: %s", bad, a.text)
		}
	}
	f.want(204, "DELETE", path, "")
	f.want(404, "GET", path, "")
}

func TestMuteConversation(t *testing.T) {
	s := newScene(t)
	s.populate()
	const path = "/v1/conversations/c-g/mute"
	if a := s.as("u-ben", 200, "PUT", path, `{"until":"2030-01-01T00:00:00Z"}`); a.body["muted"] != true || a.body["until"] != "2030-01-01T00:00:00Z" {
		t.Error(a.text)
	}
	if a := s.as("u-ben", 200, "PUT", path, `{}`); a.body["muted"] != true || a.body["until"] != nil {
		t.Error(a.text)
	}
	if n := s.count("SELECT count(*) FROM tidings.mute WHERE conv_id = 'c-g' AND user_id = 'u-ben' AND until IS NULL"); n != 1 {
		t.Errorf("%d mutes are stored", n)
	}
	for range 2 {
		if a := s.as("u-ben", 200, "DELETE", path, ""); a.body["muted"] != false {
			t.Error(a.text)
		}
	}
	s.as("u-ben", 400, "PUT", path, `{"until":"tomorrow"}`)
	// By the database's clock: one that is past keeps nobody from anything.
	s.as("u-ben", 200, "PUT", path, `{}`)
	if a := s.as("u-ben", 200, "PUT", path, `{"until":"2001-01-01T00:00:00Z"}`); a.body["muted"] != false || a.body["until"] != nil {
		t.Error(a.text)
	}
	s.as("u-ben", 200, "DELETE", path, "")
	if n := s.count("SELECT count(*) FROM tidings.mute"); n != 0 {
		t.Errorf("%d mutes are stored", n)
	}
}

// Left out, null and a number are three things here, too.
func TestNotifyAfterOfACreation(t *testing.T) {
	s := newScene(t)
	s.serve(func(c *api.Config) { c.NotifyAfter = 90 * time.Second })
	stored := func(conv string) int64 {
		t.Helper()
		return s.count("SELECT coalesce(notify_after_ms, 0) * CASE WHEN preview THEN -1 ELSE 1 END FROM tidings.conversation WHERE conv_id = $1", conv)
	}
	for conv, c := range map[string]struct {
		body string
		want int64
	}{"c-1": {`{}`, 90_000}, "c-2": {`{"notify_after_ms":null}`, 0}, "c-3": {`{"notify_after_ms":5,"preview":true}`, -5}} {
		s.by(201, "PUT", "/v1/conversations/"+conv, c.body)
		s.by(200, "PUT", "/v1/conversations/"+conv, c.body)
		s.by(200, "PUT", "/v1/conversations/"+conv, `{}`)
		if got := stored(conv); got != c.want {
			t.Errorf("%s: %d is stored", c.body, got)
		}
	}
	s.by(409, "PUT", "/v1/conversations/c-1", `{"notify_after_ms":null}`)
	s.by(409, "PUT", "/v1/conversations/c-2", `{"notify_after_ms":5}`)
	s.by(409, "PUT", "/v1/conversations/c-3", `{"preview":false}`)
	for _, bad := range []string{`{"notify_after_ms":0}`, `{"notify_after_ms":"1"}`, `{"notify_after_ms":3153600000001}`, `{"preview":"yes"}`} {
		s.by(400, "PUT", "/v1/conversations/c-bad", bad)
		s.by(400, "PATCH", "/v1/conversations/c-1", bad)
	}
	for _, c := range []struct {
		body    string
		after   any
		preview bool
	}{{`{}`, 90000.0, false}, {`{"preview":true}`, 90000.0, true}, {`{"notify_after_ms":null}`, nil, true}, {`{"notify_after_ms":7,"preview":false}`, 7.0, false}, {`{}`, 7.0, false}} {
		a := s.by(200, "PATCH", "/v1/conversations/c-1", c.body)
		if after, there := a.body["notify_after_ms"]; !there || after != c.after || a.body["preview"] != c.preview {
			t.Errorf("%s: %s", c.body, a.text)
		}
	}
}
