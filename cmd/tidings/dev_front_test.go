// Tests of what a browser sees of dev: the page, the lines of the devices, and every switch for trouble.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/client"
)

// The page is there, and the ways to the processes behind it.
func TestDevFront(t *testing.T) {
	dir := devDir(t)
	report := filepath.Join(dir, reportPath)
	if err := errors.Join(os.MkdirAll(filepath.Dir(report), 0o700), os.WriteFile(report, []byte(`{"accepted":true}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	f := startFrontIn(t, dir)
	s := f.state()
	if status, _, text := f.ask(http.MethodGet, "/v1/operator/report", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.Key) }); status != http.StatusOK || text != "{\"accepted\":true}\n" {
		t.Errorf("the report is answered with %d: %s", status, text)
	}
	if s.Conv != devConv || len(s.People) != 2 || len(s.Lines) != 4 || len(s.Gateways) != 2 || s.Backup != nil || s.Busy != "" {
		t.Errorf("the state is %+v", s)
	}
	for path, words := range map[string]string{
		"/": "<!doctype html>", "/client.js": "export {", "/readyz": "ready", "/healthz": "ok", "/console": "<form", "/v1/openapi.json": "openapi",
		"/dev/line/ana-phone/readyz": "ready",
	} {
		if status, _, text := f.ask(http.MethodGet, path, ""); status != http.StatusOK || !strings.Contains(text, words) {
			t.Errorf("GET %s is answered with %d: %.200s", path, status, text)
		}
	}

	// Nobody but this server's own page is let in.
	foreign := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		status             int
	}{
		"another Host":   {http.MethodGet, "/dev/state", "", func(r *http.Request) { r.Host = "evil.test" + r.Host[strings.LastIndex(r.Host, ":"):] }, 403},
		"another port":   {http.MethodGet, "/dev/state", "", func(r *http.Request) { r.Host = "127.0.0.1:1" }, 403},
		"localhost":      {http.MethodGet, "/dev/state", "", func(r *http.Request) { r.Host = "localhost" + r.Host[strings.LastIndex(r.Host, ":"):] }, 200},
		"another origin": {http.MethodPost, "/dev/gateways/a", `{"do":"kill"}`, foreign("Origin", "http://evil.test"), 403},
		"another site":   {http.MethodPost, "/dev/gateways/a", `{"do":"kill"}`, foreign("Sec-Fetch-Site", "cross-site"), 403},
		"a form":         {http.MethodPost, "/dev/gateways/a", `{"do":"kill"}`, foreign("Content-Type", "text/plain"), 400},
		"no order":       {http.MethodPost, "/dev/gateways/a", `{"do":"dance"}`, foreign("Accept", "*/*"), 400},
		"no gateway":     {http.MethodPost, "/dev/gateways/z", `{"do":"kill"}`, foreign("Accept", "*/*"), 404},
		"no device":      {http.MethodPost, "/dev/lines/z", `{"cut":true}`, foreign("Accept", "*/*"), 404},
		"no backup":      {http.MethodPost, "/dev/restore", `{}`, foreign("Accept", "*/*"), 409},
		"a socket of another origin": {http.MethodGet, "/dev/line/ana-phone/v1/ws", "", func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-WebSocket-Version", "13")
			r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			r.Header.Set("Origin", "http://evil.test")
		}, 403},
	} {
		if status, _, text := f.ask(c.method, c.path, c.body, c.change); status != c.status {
			t.Errorf("%s is answered with %d, not %d: %s", name, status, c.status, text)
		}
	}
	if g := f.gateway("a"); g.State != "up" {
		t.Errorf("a refused order had an effect: %+v", g)
	}
}

// What the switches of a line do to it, the clients make good.
func TestDevLines(t *testing.T) {
	f := startFront(t)
	ana, ben := f.through(devUser, "ana-phone"), f.through(devPeer, "ben-laptop")
	f.hear(ben, f.say(ana, "first").Seq)
	if s := f.state(); s.Lines["ana-phone"].Gateway != "a" || s.Lines["ben-laptop"].Gateway != "b" {
		t.Errorf("the lines lead elsewhere: %+v", s.Lines)
	}

	f.order("/dev/lines/ana-phone", `{"cut":true}`)
	if err := ana.until(f.soon(), "the cut", func() bool { return ana.State().State != client.Online }); err != nil {
		t.Fatal(err)
	}
	f.hear(ben, f.say(ana, "after-the-cut").Seq)

	f.order("/dev/lines/ana-phone", `{"online":false}`)
	if status, header, _ := f.ask(http.MethodGet, "/dev/line/ana-phone/readyz", ""); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("a line that is off is ready: %d", status)
	}
	waiting, err := ana.Send(client.Message{Conv: devConv, Cmid: "offline", Body: "written offline"})
	if err != nil {
		t.Fatal(err)
	}
	f.hear(ben, f.say(ben, "meanwhile").Seq)
	f.order("/dev/lines/ana-phone", `{"online":true}`)
	ana.Reconnect() // the pause before the next attempt is no matter of this test
	sent, err := waiting.Wait(f.soon())
	if err != nil {
		t.Fatal(err)
	}
	f.hear(ben, sent.Seq)

	f.order("/dev/lines/ana-phone", `{"lose_reply":true}`)
	if sent := f.say(ana, "answer-lost"); !sent.Dup {
		t.Errorf("the message whose answer was lost was stored by another request: %+v", sent)
	}
	if s := f.until("the lost reply", said("was lost")); s.Lines["ana-phone"].Lose {
		t.Error("more than one reply is lost")
	}

	f.order("/dev/lines/ben-laptop", `{"shuffle":true}`)
	f.say(ana, "one")
	last := f.say(ana, "two").Seq
	f.hear(ben, last)
	f.until("the shuffled pair", said("twice"))
	alone := f.say(ana, "alone").Seq // none overtakes it
	f.hear(ben, alone)

	_, log := f.log()
	if want := []string{"first", "after-the-cut", "meanwhile", "offline", "answer-lost", "one", "two", "alone"}; !slices.Equal(log, want) {
		t.Errorf("the log has %v, not %v", log, want)
	}
	ben.mu.Lock()
	defer ben.mu.Unlock()
	for i, seq := range ben.seqs {
		if i > 0 && seq != ben.seqs[i-1]+1 {
			t.Fatalf("a device was told of the events %v", ben.seqs)
		}
	}
}

// A gateway that is killed, or told to stop, comes back; the devices find the other one.
func TestDevGateways(t *testing.T) {
	f := startFront(t)
	ana := f.through(devUser, "ana-phone")
	f.say(ana, "first")
	killed := f.gateway("a").PID
	if g := decode[devGateway](t, f.order("/dev/gateways/a", `{"do":"kill"}`)); g.State != "down" || g.PID != 0 {
		t.Errorf("the killed gateway is %+v", g)
	}
	if status, _, text := f.ask(http.MethodPost, "/dev/gateways/a", `{"do":"kill"}`); status != http.StatusConflict {
		t.Errorf("it is killed twice: %d %s", status, text)
	}
	f.say(ana, "by-the-other")
	if g := f.state().Lines["ana-phone"].Gateway; g != "b" {
		t.Errorf("the line leads to %q", g)
	}
	f.until("the killed gateway to come back by itself", func(s devSight) bool { return s.Gateways[0].State == "up" && s.Gateways[0].PID != killed })

	drained := f.gateway("b").PID
	f.order("/dev/gateways/b", `{"do":"drain"}`)
	f.until("the line to be moved", func(s devSight) bool { return s.Lines["ana-phone"].Gateway == "a" })
	f.say(ana, "moved")
	f.until("the drained gateway to end", func(s devSight) bool { return s.Gateways[1].State == "down" })
	f.order("/dev/gateways/b", `{"do":"start"}`)
	f.until("the drained gateway to be started", func(s devSight) bool { return s.Gateways[1].State == "up" && s.Gateways[1].PID != drained })
	if _, log := f.log(); !slices.Equal(log, []string{"first", "by-the-other", "moved"}) {
		t.Errorf("the log has %v", log)
	}
}

// A backup is put back under the eyes of two devices: the epoch changes, and both have what the database has.
func TestDevRestore(t *testing.T) {
	dir := devDir(t)
	f := startFrontIn(t, dir)
	ana, ben := f.through(devUser, "ana-phone"), f.through(devPeer, "ben-laptop")
	f.hear(ben, f.say(ana, "kept").Seq)
	f.order("/dev/backup", `{}`)
	f.hear(ben, f.say(ana, "late").Seq)
	before, _ := f.log()

	done := make(chan string, 1)
	go func() { // waited for below
		answer, err := http.Post(f.url+"/dev/restore", "application/json", strings.NewReader(`{}`))
		if err != nil {
			done <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		done <- fmt.Sprint(answer.StatusCode, " ", string(text))
	}()
	f.until("the restore to begin", func(s devSight) bool { return s.Busy == "restore" })
	if status, _, text := f.ask(http.MethodPost, "/dev/restore", `{}`); status != http.StatusConflict {
		t.Errorf("a second restore is answered with %d: %s", status, text)
	}
	text := <-done
	var s devSight
	if !strings.HasPrefix(text, "200 ") || json.Unmarshal([]byte(text[4:]), &s) != nil || s.Backup == nil || s.Busy != "" {
		t.Fatalf("the restore is answered with %s\n%s", text, f.p.text())
	}

	again := f.say(ben, "again")
	epoch, log := f.log()
	if epoch == before || again.Epoch != epoch || !slices.Equal(log, []string{"kept", "again"}) {
		t.Errorf("the log has %v in epoch %d, after %d", log, epoch, before)
	}
	if err := ana.hears(f.soon(), "that a message is lost", func(u client.Update) bool { l, ok := u.(client.Lost); return ok && l.Cmid == "late" }); err != nil {
		t.Error(err)
	}
	for _, d := range []*device{ana, ben} {
		if err := d.until(f.soon(), d.user+" to have the new history", func() bool { return slices.Equal(messages(d, epoch), log) }); err != nil {
			t.Errorf("%v: %v", err, messages(d, epoch))
		}
	}
	f.order("/dev/restore", `{}`) // and once more
	f.say(ana, "once-more")

	// One that was cut short before the recovery is finished by the next start.
	epoch, _ = f.log()
	if err := f.p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	f.p.wait()
	due := filepath.Join(dir, ".tidings", "backup", "recovery-due")
	if err := os.WriteFile(due, []byte(s.Backup.At.Format(time.RFC3339Nano)), 0o600); err != nil {
		t.Fatal(err)
	}
	f = startFrontIn(t, dir)
	if now, log := f.log(); now == epoch || !slices.Equal(log, []string{"kept", "once-more"}) {
		t.Errorf("the log has %v in epoch %d, after %d", log, now, epoch)
	}
	if _, err := os.Stat(due); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the recovery is still due: %v", err)
	}
	if f.state().Backup == nil {
		t.Error("the backup is gone")
	}
}

// messages are the cmids that a device was told of in one history. It needs the device's lock.
func messages(d *device, epoch int64) (cmids []string) {
	for _, u := range d.told {
		if a, ok := u.(client.Arrived); ok && a.Epoch == epoch && a.Event.Kind == "msg" {
			cmids = append(cmids, a.Event.Cmid)
		}
	}
	return cmids
}

// A provider goes silent, and what becomes of it can be watched.
func TestDevNotifications(t *testing.T) {
	f := startFront(t)
	send := func(user, channel string, silent bool) (path string) {
		text := f.order("/dev/notifications", fmt.Sprintf(`{"user":%q,"channel":%q,"title":"Hello","body":"there","silent":%t}`, user, channel, silent))
		return "/dev/notifications?user=" + user + "&event_key=" + decode[struct {
			Key string `json:"event_key"`
		}](t, text).Key
	}
	type shown struct {
		Tasks []struct {
			State    string
			Review   bool
			Attempts []struct{ Outcome string }
		}
	}
	for _, c := range []struct {
		user, channel string
		silent        bool
		state         string
		review        bool
		attempts      int
	}{
		{devUser, "push", true, "SENT", false, 2},
		{devPeer, "sms", true, "SENT", false, 2},
		{devPeer, "plain", true, "UNKNOWN", true, 1},
		{devPeer, "email", false, "SENT", false, 1},
		{devUser, "webhook", false, "SENT", false, 1},
	} {
		path := send(c.user, c.channel, c.silent)
		var text string
		await(t, c.channel+" to be "+c.state, func() bool {
			_, _, text = f.ask(http.MethodGet, path, "")
			n := decode[shown](t, text)
			return len(n.Tasks) == 1 && n.Tasks[0].State == c.state && n.Tasks[0].Review == c.review && len(n.Tasks[0].Attempts) >= c.attempts
		}, func() string { return text })
	}
	if status, _, text := f.ask(http.MethodPost, "/dev/notifications", `{"user":"u-ana","channel":"email","title":"Hello","body":"there","silent":true}`); status != http.StatusBadRequest {
		t.Errorf("a mail server is told to go silent: %d %s", status, text)
	}
	if status, _, text := f.ask(http.MethodGet, "/dev/notifications?user=u-ben", ""); status != http.StatusOK || strings.Count(text, `"task"`) != 3 {
		t.Errorf("the newest of a user are answered with %d: %s", status, text)
	}
}
