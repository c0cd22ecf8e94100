package api_test

import (
	"strings"
	"testing"

	"github.com/tidings-project/tidings/internal/token"
)

func TestRecall(t *testing.T) {
	s := newScene(t)
	s.populate()
	s.exec("DELETE FROM tidings.posted")
	const path = "/v1/conversations/c-g/recalls"
	wakes := s.wakes.Load()
	a := s.as("u-ana", 201, "POST", path, `{"cmid":"r-1","target":3,"device":"d-1","unknown":1}`)
	if a.body["conv"] != "c-g" || a.body["epoch"] != float64(s.epoch()) || a.body["seq"] != 8.0 || a.body["dup"] != false || s.wakes.Load() != wakes+1 {
		t.Errorf("recalled: %s, %d wake-ups", a.text, s.wakes.Load()-wakes)
	}
	if n := s.count("SELECT count(*) FROM tidings.posted WHERE conv_id = 'c-g' AND seq = 8"); n != 1 {
		t.Error("the gateways are not told")
	}
	for _, again := range []answer{s.as("u-ana", 200, "POST", path, `{"cmid":"r-1","target":3,"epoch":7}`), s.by(200, "POST", path, `{"cmid":"r-1","target":3}`, "Tidings-User: u-ana")} {
		if again.body["seq"] != 8.0 || again.body["dup"] != true || s.wakes.Load() != wakes+1 {
			t.Errorf("again: %s, %d wake-ups", again.text, s.wakes.Load()-wakes)
		}
	}
	s.by(201, "POST", path, `{"cmid":"r-2","target":4}`, "Tidings-User: u-ana")
	s.expect(s.call(s.issue(token.Claims{User: "u-ana", Device: "d-7"}), "POST", path, `{"cmid":"r-3","target":7}`), 201, "a token that is bound to a device")
	for seq, device := range map[string]string{"8": "d-1", "9": "", "10": "d-7"} {
		a := s.as("u-ben", 200, "GET", "/v1/conversations/c-g/events/"+seq, "")
		e := a.body["event"].(map[string]any)
		if got, _ := e["sdev"].(string); e["kind"] != "recall" || e["sender"] != "u-ana" || got != device {
			t.Errorf("the recall is %s", a.text)
		}
	}
	for _, seq := range []string{"3", "4", "7"} {
		if a := s.as("u-ben", 200, "GET", "/v1/conversations/c-g/events/"+seq, ""); !strings.Contains(a.text, `"recalled":true`) || strings.Contains(a.text, `"body"`) {
			t.Errorf("the message is %s", a.text)
		}
	}
}
