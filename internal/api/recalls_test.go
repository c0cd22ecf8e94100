// Tests of recalls over HTTP.

package api_test

import (
	"fmt"
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
	// As over the socket: "no" is said of what was judged by the log.
	for body, want := range map[string]string{
		`{"cmid":"r","target":1}`: "INVALID_ARGUMENT no", `{"cmid":"r","target":99}`: "NOT_FOUND no", `{"cmid":"r","target":4}`: "ALREADY_RECALLED no",
		`{"cmid":"r","target":0}`: "INVALID_ARGUMENT unchanged", `{"target":4}`: "INVALID_ARGUMENT unchanged", `{"cmid":"r","target":5}`: "INVALID_ARGUMENT no",
	} {
		status := map[string]int{"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "ALREADY_RECALLED": 409}[strings.Fields(want)[0]]
		if a := s.as("u-ana", status, "POST", path, body); fmt.Sprint(a.body["code"], " ", a.body["stored"]) != want {
			t.Errorf("%s: %s, not %s", body, a.text, want)
		}
	}
	for _, seq := range []string{"3", "4", "7"} {
		if a := s.as("u-ben", 200, "GET", "/v1/conversations/c-g/events/"+seq, ""); !strings.Contains(a.text, `"recalled":true`) || strings.Contains(a.text, `"body"`) {
			t.Errorf("the message is %s", a.text)
		}
	}
}
