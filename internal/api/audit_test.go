// Tests of what is logged whatever the log is set to.

package api_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

// full is a log that cannot be written any more.
type full struct{ slog.Handler }

func (full) Handle(context.Context, slog.Record) error { return errors.New("no space left") }

// That bodies are read is logged however quiet the log is; where it cannot be, they are not read.
func TestReadingBodiesIsLogged(t *testing.T) {
	f := talked(t)
	curious := "Authorization: Bearer " + f.newKey("desk", store.ScopeOperate, store.ScopeBodies)
	ask := func(log *slog.Logger) answer {
		t.Helper()
		f.log.Reset()
		var err error
		if f.api, err = api.New(api.Config{Store: f.store, Keys: api.NewKeys(f.store), Logger: log}); err != nil {
			t.Fatal(err)
		}
		return f.request("GET", "/v1/operator/conversations/c-1/events?bodies=1", "", curious, api.OperatorHeader+": eve")
	}
	quiet := slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelError})
	a := ask(slog.New(quiet).With("process", "p-1"))
	if a.status != 200 || !strings.Contains(a.text, "said-body") {
		t.Errorf("%d %s", a.status, a.text)
	}
	for _, want := range []string{`"an operator reads bodies"`, `"by":"desk:eve"`, `"conv":"c-1"`, `"from":1,"to":7`, `"process":"p-1"`} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, f.log)
		}
	}
	if a := ask(slog.New(full{quiet})); a.status != 503 || a.code() != "UNAVAILABLE" || strings.Contains(a.text, "said") {
		t.Errorf("where it cannot be logged: %d %s", a.status, a.text)
	}
}
