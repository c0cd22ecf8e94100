// Tests of bad input, and of what bounds requests.

package api_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tidings-project/tidings/internal/api"
)

// Whatever is sent, the answer is a problem with a code, and nothing is stored.
func TestBadInput(t *testing.T) {
	f := newFixture(t)
	big := strings.Repeat("x", 1<<20)
	notification := func(extra string) string {
		return `{"user":"u-bad","event_key":"e","body":"b","ttl_s":60` + extra + `}`
	}
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		code                       string
	}{
		{"no body", "POST", "/v1/notifications", "", 400, "INVALID_ARGUMENT"},
		{"no JSON", "POST", "/v1/notifications", "hello", 400, "INVALID_ARGUMENT"},
		{"half of JSON", "POST", "/v1/notifications", `{"user":"u`, 400, "INVALID_ARGUMENT"},
		{"more than JSON", "POST", "/v1/notifications", notification("") + "{}", 400, "INVALID_ARGUMENT"},
		{"a list", "POST", "/v1/notifications", "[]", 400, "INVALID_ARGUMENT"},
		{"an empty object", "POST", "/v1/notifications", "{}", 400, "INVALID_ARGUMENT"},
		{"null", "POST", "/v1/notifications", "null", 400, "INVALID_ARGUMENT"},
		{"a notification that is null", "POST", "/v1/notifications", `{"notifications":[null]}`, 400, "INVALID_ARGUMENT"},
		{"a field of another type", "POST", "/v1/notifications", notification(`,"title":5`), 400, "INVALID_ARGUMENT"},
		{"no time to live", "POST", "/v1/notifications", `{"user":"u-bad","event_key":"e","body":"b"}`, 400, "INVALID_ARGUMENT"},
		{"a negative time to live", "POST", "/v1/notifications", `{"user":"u-bad","event_key":"e","body":"b","ttl_s":-1}`, 400, "INVALID_ARGUMENT"},
		{"a time to live that overflows", "POST", "/v1/notifications", `{"user":"u-bad","event_key":"e","body":"b","ttl_s":9223372036854775807}`, 400, "INVALID_ARGUMENT"},
		{"half a second", "POST", "/v1/notifications", `{"user":"u-bad","event_key":"e","body":"b","ttl_s":0.5}`, 400, "INVALID_ARGUMENT"},
		{"a user with a space", "POST", "/v1/notifications", `{"user":"u bad","event_key":"e","body":"b","ttl_s":60}`, 400, "INVALID_ARGUMENT"},
		{"a user of 129 bytes", "POST", "/v1/notifications", `{"user":"` + strings.Repeat("u", 129) + `","event_key":"e","body":"b","ttl_s":60}`, 400, "INVALID_ARGUMENT"},
		{"bytes that are no UTF-8", "POST", "/v1/notifications", notification(",\"title\":\"\xff\""), 400, "INVALID_ARGUMENT"},
		{"U+0000", "POST", "/v1/notifications", notification(`,"title":"a\u0000b"`), 400, "INVALID_ARGUMENT"},
		{"U+0000 in a field that is ignored", "POST", "/v1/notifications", notification(`,"other":"\u0000"`), 400, "INVALID_ARGUMENT"},
		{"a high surrogate alone", "POST", "/v1/notifications", notification(`,"title":"\ud83d"`), 400, "INVALID_ARGUMENT"},
		{"a high surrogate before something else", "POST", "/v1/notifications", notification(`,"title":"\ud83dA"`), 400, "INVALID_ARGUMENT"},
		{"a low surrogate alone", "POST", "/v1/notifications", notification(`,"title":"\ude00"`), 400, "INVALID_ARGUMENT"},
		{"a lone surrogate in data", "POST", "/v1/notifications", notification(`,"data":{"a":"\ude00"}`), 400, "INVALID_ARGUMENT"},
		{"a field twice", "POST", "/v1/notifications", notification(`,"ttl_s":61`), 400, "INVALID_ARGUMENT"},
		{"a field twice in two spellings", "POST", "/v1/notifications", `{"notifications":[` + notification(`,"TTL_S":61`) + `]}`, 400, "INVALID_ARGUMENT"},
		{"data that is a list", "POST", "/v1/notifications", notification(`,"data":[1]`), 400, "INVALID_ARGUMENT"},
		{"data that nests too deeply", "POST", "/v1/notifications", notification(`,"data":{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`), 400, "INVALID_ARGUMENT"},
		{"JSON that nests without end", "POST", "/v1/notifications", strings.Repeat("[", 20_000), 400, "INVALID_ARGUMENT"},
		{"a body that is too long", "POST", "/v1/notifications", notification(`,"other":"` + big + `"`), 413, "TOO_LARGE"},
		{"a text that is too long", "POST", "/v1/notifications", notification(`,"title":"` + big[:1025] + `"`), 413, "TOO_LARGE"},
		{"an unknown word for duplicates", "POST", "/v1/notifications", notification(`,"duplicates":"perhaps"`), 400, "INVALID_ARGUMENT"},
		{"a channel that is no id", "POST", "/v1/notifications", notification(`,"channels":["a b"]`), 400, "INVALID_ARGUMENT"},
		{"a time that is none", "POST", "/v1/notifications", notification(`,"not_before":"tomorrow"`), 400, "INVALID_ARGUMENT"},
		{"a time before time", "POST", "/v1/notifications", notification(`,"not_before":"0001-01-01T00:00:00Z"`), 400, "INVALID_ARGUMENT"},
		{"a time far ahead", "POST", "/v1/notifications", notification(`,"not_before":"9000-01-01T00:00:00Z"`), 400, "INVALID_ARGUMENT"},

		{"an id that is none", "GET", "/v1/notifications/5", "", 400, "INVALID_ARGUMENT"},
		{"an id of nothing", "GET", "/v1/notifications/00000000-0000-0000-0000-000000000001", "", 404, "NOT_FOUND"},
		{"a search for nothing", "GET", "/v1/notifications", "", 400, "INVALID_ARGUMENT"},
		{"a search for U+0000", "GET", "/v1/notifications?user=%00&event_key=e", "", 400, "INVALID_ARGUMENT"},
		{"a search for half of UTF-8", "GET", "/v1/notifications?user=%ff&event_key=e", "", 400, "INVALID_ARGUMENT"},
		{"a user with a slash", "GET", "/v1/users/a%2Fb/channels", "", 400, "INVALID_ARGUMENT"},
		{"a user with U+0000", "GET", "/v1/users/a%00b/channels", "", 400, "INVALID_ARGUMENT"},
		{"a slot with U+0000", "DELETE", "/v1/users/a/channels/push?slot=%00", "", 400, "INVALID_ARGUMENT"},
		{"a category with U+0000", "DELETE", "/v1/users/a/optouts/x%00", "", 400, "INVALID_ARGUMENT"},
		{"a preference without address", "PUT", "/v1/users/u-bad/channels/push", `{}`, 400, "INVALID_ARGUMENT"},
		{"a preference with an empty address", "PUT", "/v1/users/u-bad/channels/push", `{"address":""}`, 400, "INVALID_ARGUMENT"},
		{"a preference with U+0000", "PUT", "/v1/users/u-bad/channels/push", `{"address":"a\u0000"}`, 400, "INVALID_ARGUMENT"},
		{"a cursor that is none", "GET", "/v1/reviews?after=x", "", 400, "INVALID_ARGUMENT"},
		{"a page that is too long", "GET", "/v1/reviews?limit=501", "", 400, "INVALID_ARGUMENT"},
		{"reviews of U+0000", "GET", "/v1/reviews?user=%00", "", 400, "INVALID_ARGUMENT"},
		{"a resolution to nothing", "POST", "/v1/reviews/00000000-0000-0000-0000-000000000001", `{"state":"SENDING","attempt_count":1}`, 400, "INVALID_ARGUMENT"},
		{"a resolution without a count", "POST", "/v1/reviews/00000000-0000-0000-0000-000000000001", `{"state":"SENT"}`, 400, "INVALID_ARGUMENT"},
		{"a resolution of nothing", "POST", "/v1/reviews/00000000-0000-0000-0000-000000000001", `{"state":"SENT","attempt_count":1}`, 404, "NOT_FOUND"},
		{"no resolutions", "POST", "/v1/reviews", `{"resolutions":[]}`, 400, "INVALID_ARGUMENT"},
		{"a pause without a reason", "POST", "/v1/channels/push/pause", `{}`, 400, "INVALID_ARGUMENT"},

		{"an unknown path", "GET", "/v1/nothing", "", 404, "NOT_FOUND"},
		{"an unknown method", "PATCH", "/v1/notifications", "{}", 405, "INVALID_ARGUMENT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := f.do(c.method, c.target, c.body)
			if a.status != c.status || a.code() != c.code {
				t.Fatalf("answered with %d %s, not %d %s: %s", a.status, a.code(), c.status, c.code, a.text)
			}
			if got := a.header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("the answer is %s", got)
			}
			if a.body["status"] != float64(c.status) || a.body["detail"] == "" || a.body["retry"] == "" {
				t.Errorf("the problem is incomplete: %s", a.text)
			}
			if len(a.text) > 2000 {
				t.Errorf("the answer has %d bytes", len(a.text))
			}
		})
	}
	if a := f.do("PATCH", "/v1/notifications", "{}"); !strings.Contains(a.header.Get("Allow"), "POST") {
		t.Errorf("the answer to an unknown method allows %q", a.header.Get("Allow"))
	}
	if a := f.do("GET", "/v1/notifications?user=u-bad&event_key=e", ""); a.status != 404 {
		t.Errorf("something was stored: %s", a.text)
	}
	if strings.Contains(f.log.String(), `"level":"ERROR"`) {
		t.Errorf("bad input counts as a defect of ours:\n%s", f.log)
	}
}

// A refusal names the field, in words of the request.
func TestRefusalNamesTheField(t *testing.T) {
	f := newFixture(t)
	one := func(rest string) string { return `{"user":"u","event_key":"e","body":"b"` + rest + `}` }
	for _, c := range []struct{ target, body, detail string }{
		{"/v1/notifications", one(``), "ttl_s is missing"},
		{"/v1/notifications", one(`,"ttl_s":-5`), "ttl_s is -5, it must be 1 to 31622400 seconds"},
		{"/v1/notifications", one(`,"ttl_s":"5m"`), "ttl_s is not a whole number of seconds"},
		{"/v1/notifications", one(`,"ttl_s":99999999999`), "ttl_s: 99999999999 seconds are out of range"},
		{"/v1/notifications", one(`,"ttl_s":5,"not_before":"tomorrow"`), "not_before is not a time"},
		{"/v1/notifications", one(`,"ttl_s":5,"not_before":7`), "not_before is not a time"},
		{"/v1/notifications", one(`,"ttl_s":5,"title":[]`), "title cannot be an array"},
		{"/v1/notifications", `{"notifications":[` + one(`,"ttl_s":5`) + `,` + one(`,"ttl_s":5,"not_before":"soon"`) + `]}`, "notifications[1]: not_before is not a time"},
		{"/v1/notifications", `{"notifications":[` + one(`,"ttl_s":5`) + `,` + one(``) + `]}`, "notification 1: ttl_s is missing"},
		{"/v1/reviews/5", `{"state":"SENT","attempt_count":1}`, "an id of 1 characters is not a UUID"},
	} {
		a := f.want(400, "POST", c.target, c.body)
		if detail := a.body["detail"].(string); !strings.Contains(detail, c.detail) || strings.Contains(detail, "INVALID_ARGUMENT") {
			t.Errorf("%s is refused with %q", c.body, detail)
		}
	}
}

// What looks unusual and is allowed is stored as it came.
func TestGoodInput(t *testing.T) {
	f := newFixture(t)
	for i, c := range []struct{ text, title string }{
		{`"\ud83d\ude00"`, "😀"},
		{`"😀"`, "😀"},
		{`"\\u0000"`, `\u0000`},
		{`"\"\\"`, `"\`},
		{`"\uffff\u0001"`, "\uffff\u0001"},
		{`""`, ""},
	} {
		key := fmt.Sprintf("e-%d", i)
		f.want(201, "POST", "/v1/notifications", `{"user":"u-!~","event_key":"`+key+`","body":"b","ttl_s":1,"title":`+c.text+`,"unknown":{"field":[1]}}`)
		a := f.want(200, "GET", "/v1/notifications?user=u-!~&event_key="+key, "")
		if title, _ := a.body["title"].(string); title != c.title {
			t.Errorf("%s is stored as %q", c.text, title)
		}
	}
}

// A defect of an adapter is answered without its details, and the next request is served.
func TestPanic(t *testing.T) {
	f := newFixture(t)
	a := f.request("POST", "/v1/channels/broken/receipts", "x")
	if a.status != 500 || a.code() != "INTERNAL" || strings.Contains(a.text, "secret") {
		t.Errorf("a panic is answered with %d %s", a.status, a.text)
	}
	if !strings.Contains(f.log.String(), "ParseReceipt") || strings.Contains(f.log.String(), "secret") {
		t.Errorf("the log says %s", f.log)
	}
	f.want(200, "GET", "/v1/channels", "")
}

// One request more than are served at the same time is refused at once, and as soon as one has ended the next is served.
func TestInFlightLimit(t *testing.T) {
	f := newFixture(t)
	var held sync.WaitGroup
	release := make(chan struct{})
	bodies := make(chan struct{}, api.MaxInFlight)
	for range api.MaxInFlight {
		held.Go(func() {
			r := httptest.NewRequest("POST", "/v1/channels/push/receipts", &slowBody{reading: bodies, release: release})
			f.api.ServeHTTP(httptest.NewRecorder(), r.WithContext(t.Context()))
		})
	}
	for range api.MaxInFlight {
		<-bodies
	}
	if a := f.do("GET", "/v1/channels", ""); a.status != 429 || a.code() != "RATE_LIMITED" || a.header.Get("Retry-After") == "" {
		t.Errorf("one request too many is answered with %d %s", a.status, a.text)
	}
	close(release)
	held.Wait()
	f.want(200, "GET", "/v1/channels", "")
}

// slowBody is a body that comes when the test says so.
type slowBody struct {
	reading chan<- struct{}
	release <-chan struct{}
}

func (b *slowBody) Read([]byte) (int, error) {
	b.reading <- struct{}{}
	<-b.release
	return 0, io.EOF
}
