// Tests of the operations on notifications, preferences, reviews and channels.

package api_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/webhook"
	"github.com/tidings-project/tidings/internal/store"
)

// reach makes a user reachable on a channel.
func (f *fixture) reach(user, channel string) {
	f.t.Helper()
	f.want(200, "PUT", "/v1/users/"+user+"/channels/"+channel, `{"address":"`+user+`-on-`+channel+`"}`)
}

// submit creates a notification and returns its id.
func (f *fixture) submit(user, eventKey string) string {
	f.t.Helper()
	a := f.want(201, "POST", "/v1/notifications", fmt.Sprintf(`{"user":%q,"event_key":%q,"body":"b","ttl_s":600}`, user, eventKey))
	return a.body["id"].(string)
}

// task reads the only task of a notification.
func (f *fixture) task(id string) map[string]any {
	f.t.Helper()
	tasks := f.want(200, "GET", "/v1/notifications/"+id, "").body["tasks"].([]any)
	if len(tasks) != 1 {
		f.t.Fatalf("the notification has %d tasks", len(tasks))
	}
	return tasks[0].(map[string]any)
}

// end claims what is due on a channel and ends it with an outcome, as a worker would.
func (f *fixture) end(channel string, outcome tidings.Outcome) {
	f.t.Helper()
	ctx := context.Background()
	var claim store.ClaimID
	_, _ = rand.Read(claim[:]) // never fails
	claimed, err := f.store.Claim(ctx, store.Lane{Channel: channel, Worker: "w", Renderer: "r/1", Lease: time.Minute, Timeout: time.Second}, 100, claim, nil)
	if err != nil || len(claimed) == 0 {
		f.t.Fatalf("claimed %d tasks, %v", len(claimed), err)
	}
	var ends []store.Finish
	for _, c := range claimed {
		ends = append(ends, store.Finish{ID: c.ID, N: c.N, Token: c.Token, Doubted: true, Verdict: tidings.Finish(c.Held, tidings.Observation{Outcome: outcome})})
	}
	if stale, err := f.store.Finish(ctx, ends); err != nil || len(stale) > 0 {
		f.t.Fatalf("finished with %d stale, %v", len(stale), err)
	}
}

func TestSubmit(t *testing.T) {
	f := newFixture(t)
	f.reach("u-ana", "push")
	f.reach("u-ana", "sms")
	const n = `{"user":"u-ana","event_key":"order-1","title":"T","body":"B","data":{"n":1},"category":"orders","ttl_s":3600,"priority":0,"max_attempts":3,"duplicates":"allow","about":{"conv":"c-1","seq":4}}`
	first := f.want(201, "POST", "/v1/notifications", n)
	if first.body["created"] != true || first.body["tasks"] != float64(2) || f.wakes.Load() != 1 {
		t.Errorf("created: %s, %d wake-ups", first.text, f.wakes.Load())
	}
	again := f.want(200, "POST", "/v1/notifications", n)
	if again.body["created"] != false || again.body["id"] != first.body["id"] || again.body["payload_differs"] != false || f.wakes.Load() != 1 {
		t.Errorf("again: %s, %d wake-ups", again.text, f.wakes.Load())
	}
	other := f.want(200, "POST", "/v1/notifications", strings.Replace(n, `"B"`, `"C"`, 1))
	if other.body["created"] != false || other.body["payload_differs"] != true {
		t.Errorf("with another body: %s", other.text)
	}
	id := first.body["id"].(string)
	byID, byKey := f.want(200, "GET", "/v1/notifications/"+id, ""), f.want(200, "GET", "/v1/notifications?user=u-ana&event_key=order-1", "")
	if byID.text != byKey.text {
		t.Errorf("read by id and by key are two things:\n%s\n%s", byID.text, byKey.text)
	}
	for field, want := range map[string]any{"body": "B", "title": "T", "category": "orders", "priority": 0.0, "max_attempts": 3.0, "duplicates": "allow"} {
		if byID.body[field] != want {
			t.Errorf("%s is stored as %v", field, byID.body[field])
		}
	}
	for _, task := range byID.body["tasks"].([]any) {
		if task := task.(map[string]any); task["state"] != "PENDING" || len(task["attempts"].([]any)) != 0 {
			t.Errorf("a new task is %v", task)
		}
	}
}

func TestSubmitMany(t *testing.T) {
	f := newFixture(t)
	f.submit("u-ben", "e-2")
	item := func(key string) string {
		return fmt.Sprintf(`{"user":"u-ben","event_key":%q,"body":"b","ttl_s":60}`, key)
	}
	a := f.want(200, "POST", "/v1/notifications", `{"notifications":[`+item("e-1")+`,`+item("e-2")+`,`+item("e-3")+`,`+item("e-3")+`]}`)
	var created []bool
	for _, n := range a.body["notifications"].([]any) {
		created = append(created, n.(map[string]any)["created"].(bool))
	}
	if fmt.Sprint(created) != "[true false true false]" {
		t.Errorf("created are %v: %s", created, a.text)
	}
	// one that is wrong refuses all
	bad := f.do("POST", "/v1/notifications", `{"notifications":[`+item("e-4")+`,`+item("e 5")+`]}`)
	if bad.code() != "INVALID_ARGUMENT" || !strings.Contains(bad.text, "notification 1") {
		t.Errorf("a bad one among good ones: %s", bad.text)
	}
	f.want(404, "GET", "/v1/notifications?user=u-ben&event_key=e-4", "")
	if a := f.want(200, "POST", "/v1/notifications", `{"notifications":[]}`); a.text != `{"notifications":[]}`+"\n" {
		t.Errorf("none at all: %s", a.text)
	}
}

func TestSubmitConcurrently(t *testing.T) {
	f := newFixture(t)
	f.reach("u-ana", "push")
	const clients = 16
	var start, done sync.WaitGroup
	start.Add(1)
	answers := make([]answer, clients)
	for i := range clients {
		done.Go(func() {
			start.Wait()
			answers[i] = f.do("POST", "/v1/notifications", `{"user":"u-ana","event_key":"one","body":"b","ttl_s":60}`)
		})
	}
	start.Done()
	done.Wait()
	created := 0
	for _, a := range answers {
		switch {
		case a.status == http.StatusCreated:
			created++
		case a.status != http.StatusOK || a.body["id"] != answers[0].body["id"] || a.body["tasks"] != 1.0:
			t.Errorf("answered with %d %s", a.status, a.text)
		}
	}
	if created != 1 {
		t.Errorf("%d of %d answers say that theirs created it", created, clients)
	}
}

func TestCancel(t *testing.T) {
	f := newFixture(t)
	f.reach("u-ana", "push")
	id := f.submit("u-ana", "e")
	if a := f.want(200, "POST", "/v1/notifications/"+id+"/cancel", ""); a.body["cancelled"] != true {
		t.Errorf("cancelled: %s", a.text)
	}
	if a := f.want(200, "POST", "/v1/notifications/"+id+"/cancel", ""); a.body["cancelled"] != false {
		t.Errorf("cancelled again: %s", a.text)
	}
	f.want(404, "POST", "/v1/notifications/00000000-0000-0000-0000-000000000001/cancel", "")
}

func TestPreferences(t *testing.T) {
	f := newFixture(t)
	const path = "/v1/users/u-ana/channels/push"
	f.want(404, "GET", path, "")
	if a := f.do("PUT", path, `{"address":"a","version":7}`); a.code() != "CONFLICT" || a.status != 409 {
		t.Errorf("a version of nothing: %s", a.text)
	}
	first := f.want(200, "PUT", path, `{"address":"a","version":0}`)
	if first.body["enabled"] != true || first.body["address"] != "a" {
		t.Errorf("a new preference is %s", first.text)
	}
	version := int64(first.body["version"].(float64))
	off := f.want(200, "PUT", path, fmt.Sprintf(`{"address":"a","enabled":false,"version":%d}`, version))
	if off.body["enabled"] != false {
		t.Errorf("switched off: %s", off.text)
	}
	if a := f.do("PUT", path, fmt.Sprintf(`{"address":"b","version":%d}`, version)); a.code() != "CONFLICT" {
		t.Errorf("an old version: %s", a.text)
	}
	f.want(200, "PUT", path+"?slot=tablet", `{"address":"t"}`)
	if a := f.want(200, "GET", "/v1/users/u-ana/channels", ""); len(a.body["channels"].([]any)) != 2 {
		t.Errorf("the list is %s", a.text)
	}
	if a := f.want(200, "GET", path+"?slot=tablet", ""); a.body["address"] != "t" {
		t.Errorf("the slot is %s", a.text)
	}
	f.want(204, "DELETE", path, "")
	f.want(404, "DELETE", path, "")
	f.want(200, "GET", path+"?slot=tablet", "")

	f.want(204, "PUT", "/v1/users/u-ana/optouts/news", "")
	f.want(204, "PUT", "/v1/users/u-ana/optouts/news?channel=sms", "")
	if a := f.want(200, "GET", "/v1/users/u-ana/optouts", ""); len(a.body["optouts"].([]any)) != 2 {
		t.Errorf("the opt-outs are %s", a.text)
	}
	f.want(204, "DELETE", "/v1/users/u-ana/optouts/news", "")
	f.want(404, "DELETE", "/v1/users/u-ana/optouts/news", "")
	if a := f.want(200, "GET", "/v1/users/u-nobody/channels", ""); a.text != `{"channels":[]}`+"\n" {
		t.Errorf("nobody's preferences are %s", a.text)
	}
}

func TestReviews(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for i := range 5 {
		user := fmt.Sprintf("u-%d", i)
		f.reach(user, "plain")
		ids = append(ids, f.submit(user, "e"))
	}
	f.end("plain", tidings.Timeout)

	seen := map[string]bool{}
	next := ""
	for pages := 0; ; pages++ {
		page := f.want(200, "GET", "/v1/reviews?limit=2&after="+next, "")
		for _, item := range page.body["reviews"].([]any) {
			seen[item.(map[string]any)["id"].(string)] = true
		}
		if next, _ = page.body["next"].(string); next == "" || pages > 5 {
			break
		}
	}
	if len(seen) != 5 {
		t.Fatalf("%d of 5 parked tasks are listed", len(seen))
	}
	if a := f.want(200, "GET", "/v1/reviews?user=u-3&channel=plain", ""); len(a.body["reviews"].([]any)) != 1 {
		t.Errorf("the reviews of one user are %s", a.text)
	}

	task := f.task(ids[0])
	path := "/v1/reviews/" + task["id"].(string)
	detail := f.want(200, "GET", path, "")
	if attempts := detail.body["attempts"].([]any); len(attempts) != 1 || attempts[0].(map[string]any)["outcome"] != "TIMEOUT" {
		t.Errorf("its journal is %v", attempts)
	}
	if detail.body["review"] != true || detail.body["address"] != "u-0-on-plain" || detail.body["body"] == nil || detail.body["contract"] == nil ||
		!strings.Contains(fmt.Sprint(detail.body["unknown"]), "attempt 1 to send it ended as TIMEOUT") || detail.body["attempt_count"] != 1.0 {
		t.Errorf("the task is %s", detail.text)
	}
	if a := f.do("POST", path, `{"state":"SENT","attempt_count":0}`); a.code() != "CONFLICT" {
		t.Errorf("a stale page: %s", a.text)
	}
	f.want(200, "POST", path, `{"state":"sent","attempt_count":1,"note":"the provider has it"}`, "Tidings-Operator: eve")
	if sent := f.want(200, "GET", path, ""); sent.body["state"] != "SENT" || sent.body["settled_by"] != "console:eve" {
		t.Errorf("settled: %s", sent.text)
	}
	if a := f.do("POST", path, `{"state":"FAILED","attempt_count":2}`); a.code() != "ALREADY_SETTLED" || a.status != 409 {
		t.Errorf("settled twice: %s", a.text)
	}

	task1, task2 := f.task(ids[1])["id"].(string), f.task(ids[2])["id"].(string)
	f.wakes.Store(0)
	many := f.want(200, "POST", "/v1/reviews", fmt.Sprintf(`{"resolutions":[{"task":%q,"state":"resend","attempt_count":1},{"task":%q,"state":"FAILED","attempt_count":9},{"task":%q,"state":"SENT","attempt_count":1}]}`,
		task1, task2, task["id"]))
	var codes []any
	for _, r := range many.body["results"].([]any) {
		problem, _ := r.(map[string]any)["problem"].(map[string]any)
		codes = append(codes, problem["code"])
	}
	if fmt.Sprint(codes) != "[<nil> CONFLICT ALREADY_SETTLED]" || f.wakes.Load() == 0 {
		t.Errorf("the answers are %v (%d wake-ups): %s", codes, f.wakes.Load(), many.text)
	}
	if resent := f.task(ids[1]); resent["state"] != "UNKNOWN" || resent["forced"] != true {
		t.Errorf("a task that is sent once more is %v", resent)
	}
}

func TestChannels(t *testing.T) {
	f := newFixture(t)
	list := func() map[string]map[string]any {
		out := map[string]map[string]any{}
		for _, c := range f.want(200, "GET", "/v1/channels", "").body["channels"].([]any) {
			c := c.(map[string]any)
			out[c["name"].(string)] = c
		}
		return out
	}
	before := list()
	if len(before) != 4 || before["push"]["pause"] != nil {
		t.Fatalf("the channels are %v", before)
	}
	contract := before["push"]["contract"].(map[string]any)
	if contract["key"].(map[string]any)["window_s"] != 86400.0 || contract["query"] != nil || contract["receipts"] != true ||
		fmt.Sprint(contract["safe_statuses"]) != "[400 410 429 503]" || contract["source"] == "" {
		t.Errorf("the contract of push is %v", contract)
	}
	f.reach("u-ana", "push")
	f.submit("u-ana", "e")
	f.want(200, "POST", "/v1/channels/push/pause", `{"reason":"the provider has trouble"}`)
	paused := list()["push"]
	if pause, _ := paused["pause"].(map[string]any); pause["reason"] != "the provider has trouble" || pause["by"] != "console" {
		t.Errorf("the paused channel is %v", paused)
	}
	if health := paused["health"].(map[string]any); health["due"] != 1.0 || health["oldest_due"] == nil {
		t.Errorf("its health is %v", health)
	}
	f.wakes.Store(0)
	f.want(200, "POST", "/v1/channels/push/resume", "")
	if list()["push"]["pause"] != nil || f.wakes.Load() != 1 {
		t.Error("the channel is not resumed, or nobody was woken")
	}
	f.want(200, "POST", "/v1/channels/push/pause", fmt.Sprintf(`{"reason":"x","until":%q}`, time.Now().Add(-time.Hour).Format(time.RFC3339)))
	if list()["push"]["pause"] != nil {
		t.Error("a pause that is over is shown")
	}

	// A channel that this process does not have may be another's, or a typo.
	f.reach("u-ana", "fax")
	f.submit("u-ana", "to-a-fax")
	if fax := list()["fax"]; fax == nil || fax["contract"] != nil || fax["health"].(map[string]any)["due"] != 1.0 {
		t.Errorf("a channel that nobody serves is %v", fax)
	}
	for _, verb := range []string{"pause", "resume"} {
		if note := f.want(200, "POST", "/v1/channels/fax/"+verb, `{"reason":"x"}`).body["note"]; note == nil {
			t.Errorf("%s of a channel that is not here says nothing of that", verb)
		}
	}
}

func TestReceipts(t *testing.T) {
	f := newFixture(t)
	f.reach("u-ana", "push")
	id := f.submit("u-ana", "e")
	f.end("push", tidings.Timeout)
	task := f.task(id)
	secret, err := webhook.ParseSecret(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	report := func(secret webhook.Secret, r webhook.Receipt) answer {
		t.Helper()
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		webhook.Sign(header, []webhook.Secret{secret}, "r-1", time.Now(), body)
		var headers []string
		for name := range header {
			headers = append(headers, name+": "+header.Get(name))
		}
		return f.request("POST", "/v1/channels/push/receipts", string(body), headers...)
	}
	reference := strings.ReplaceAll(task["id"].(string), "-", "")
	r := webhook.Receipt{Reference: reference, ProviderMsgID: "p-1", Status: "failed", Detail: "the phone is off"}

	wrong, err := webhook.ParseSecret("whsec_" + strings.Repeat("QUJD", 8))
	if err != nil {
		t.Fatal(err)
	}
	if a := report(wrong, r); a.status != 401 || a.code() != "UNAUTHENTICATED" {
		t.Errorf("a forged receipt is answered with %d %s", a.status, a.text)
	}
	if a := f.request("POST", "/v1/channels/push/receipts", "{}"); a.status != 401 {
		t.Errorf("a receipt without a signature is answered with %d %s", a.status, a.text)
	}
	if got := f.task(id)["state"]; got != task["state"] {
		t.Errorf("a forged receipt made the task %v", got)
	}
	for _, channel := range []string{"plain", "fax"} {
		if a := f.request("POST", "/v1/channels/"+channel+"/receipts", "{}"); a.status != 404 {
			t.Errorf("a receipt for %s is answered with %d %s", channel, a.status, a.text)
		}
	}
	if a := report(secret, webhook.Receipt{Status: "delivered"}); a.code() != "INVALID_ARGUMENT" {
		t.Errorf("a receipt for nothing: %s", a.text)
	}
	if a := report(secret, r); a.status != 200 || a.body["settled"] != 1.0 {
		t.Errorf("the receipt is answered with %d %s", a.status, a.text)
	}
	if got := f.task(id); got["state"] != "SENT" || got["provider_msg_id"] != "p-1" {
		t.Errorf("after its receipt the task is %v", got)
	}
	if a := report(secret, r); a.body["replayed"] != 1.0 || a.body["settled"] != 0.0 {
		t.Errorf("the same receipt again is answered with %s", a.text)
	}
	if a := report(secret, webhook.Receipt{ProviderMsgID: "p-9", Status: "delivered"}); a.body["unmatched"] != 1.0 {
		t.Errorf("a stranger's receipt is answered with %s", a.text)
	}
}
