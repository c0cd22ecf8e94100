// Tests of keys and scopes.

package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

// Every operation of the document refuses a request without a key, with a wrong one, and with one that has every other scope.
// Only those that are meant to be open are.
func TestEveryOperationNeedsAKey(t *testing.T) {
	f := newFixture(t)
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Security    []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(f.api.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("{id}", "00000000-0000-0000-0000-000000000001", "{task}", "00000000-0000-0000-0000-000000000001",
		"{user}", "u-ana", "{channel}", "push", "{category}", "news", "{conv}", "c-1", "{cmid}", "m-1", "{seq}", "1")
	open := []string{"receive-receipts"}
	operations := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			operations++
			method = strings.ToUpper(method)
			target := fill.Replace(path)
			if strings.Contains(target, "{") {
				t.Fatalf("%s has a parameter that this test does not fill", path)
			}
			var scopes []string
			for _, s := range op.Security {
				scopes = append(scopes, s["key"]...)
			}
			if len(scopes) == 0 {
				if !slices.Contains(open, op.OperationID) {
					t.Errorf("%s %s is open to everybody", method, path)
				}
				continue
			}
			others := slices.DeleteFunc(slices.Clone(store.Scopes), func(s string) bool { return slices.Contains(scopes, s) })
			weak := "" // what every key may do has none
			if len(others) > 0 {
				weak = f.newKey("weak", others...)
			}
			for _, c := range []struct {
				name, header, code string
				status             int
			}{
				{"no key", "", "UNAUTHENTICATED", 401},
				{"another scheme", "Authorization: Basic " + f.key, "UNAUTHENTICATED", 401},
				{"an unknown key", "Authorization: Bearer tdk_unknown", "UNAUTHENTICATED", 401},
				{"a token where none is accepted", "Authorization: Bearer a.b.c", "UNAUTHENTICATED", 401},
				{"a key with every other scope", "Authorization: Bearer " + weak, "FORBIDDEN", 403},
			} {
				if c.status == 403 && weak == "" {
					continue
				}
				var headers []string
				if c.header != "" {
					headers = append(headers, c.header)
				}
				a := f.request(method, target, "", headers...)
				if a.status != c.status || a.code() != c.code {
					t.Errorf("%s %s with %s answers %d %s, not %d %s", method, path, c.name, a.status, a.code(), c.status, c.code)
				}
				if c.status == 401 && a.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s %s with %s does not say how to authenticate", method, path, c.name)
				}
			}
			for _, scope := range scopes {
				a := f.request(method, target, "", "Authorization: Bearer "+f.newKey("strong", scope))
				if a.status == 401 || a.status == 403 {
					t.Errorf("%s %s refuses a key with the scope %s: %s", method, path, scope, a.text)
				}
			}
		}
	}
	if operations < 19 {
		t.Errorf("only %d operations were looked at", operations)
	}
}

func TestRevocationArrives(t *testing.T) {
	f := newFixture(t)
	secret, id, err := f.store.CreateKey(t.Context(), "short-lived", []string{store.ScopeOperate})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() int { return f.request("GET", "/v1/channels", "", "Authorization: Bearer "+secret).status }
	if got := ask(); got != http.StatusOK {
		t.Fatalf("a fresh key is answered with %d", got)
	}
	if err := f.store.RevokeKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for ask() == http.StatusOK {
		if time.Since(revoked) > api.KeyCacheTime+2*time.Second {
			t.Fatalf("a revoked key still works after %v", time.Since(revoked))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got := ask(); got != http.StatusUnauthorized {
		t.Errorf("a revoked key is answered with %d", got)
	}
}

func TestOperatorHeader(t *testing.T) {
	f := newFixture(t)
	f.want(200, "POST", "/v1/channels/push/pause", `{"reason":"trouble"}`, api.OperatorHeader+": eve")
	states, err := f.store.ChannelStates(t.Context())
	if err != nil || len(states) != 1 || states[0].By != "console:eve" {
		t.Errorf("the pause is recorded as %+v, %v", states, err)
	}
	for _, name := range []string{"eve mallory", "a/b", strings.Repeat("x", 125)} {
		if a := f.do("POST", "/v1/channels/push/pause", `{"reason":"trouble"}`, api.OperatorHeader+": "+name); a.code() != "INVALID_ARGUMENT" {
			t.Errorf("the operator %q is answered with %s", name, a.text)
		}
	}
}

// What a request holds never reaches the log.
func TestNothingPrivateIsLogged(t *testing.T) {
	f := newFixture(t)
	f.want(200, "PUT", "/v1/users/u-ana/channels/push", `{"address":"secret-address"}`)
	f.want(201, "POST", "/v1/notifications", `{"user":"u-ana","event_key":"e","title":"secret-title","body":"secret-body","ttl_s":60}`)
	f.want(400, "POST", "/v1/notifications", `{"user":"secret-user secret","event_key":"e","body":"secret-body","ttl_s":60}`)
	f.store.Pool().Close() // from here on everything fails
	a := f.do("POST", "/v1/notifications", `{"user":"u-ana","event_key":"f","body":"secret-body","ttl_s":60}`)
	if a.status != 503 || a.body["retry"] != "same" || a.header.Get("Retry-After") == "" {
		t.Errorf("without a database the answer is %d %s", a.status, a.text)
	}
	if f.log.Len() == 0 {
		t.Fatal("nothing was logged at all")
	}
	for _, word := range []string{"secret", f.key} {
		if strings.Contains(f.log.String(), word) {
			t.Errorf("the log holds %q:\n%s", word, f.log)
		}
	}
}
