// Package api is the HTTP interface: conversations, notifications, reviews, preferences, channels and receipts, described by the OpenAPI
// document that it serves at /v1/openapi.json. Every refusal is a problem document with a code of package tidings.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/wire"
)

// tokenScheme is the name under which OpenAPI knows users' tokens.
const tokenScheme = "token"

// The limits of a request.
const (
	MaxBody        = 1 << 20 // bytes
	RequestTimeout = 30 * time.Second
	MaxInFlight    = 512 // requests at the same time; one more is answered with RATE_LIMITED
)

// Config is what the API works on.
type Config struct {
	Store     *store.Store
	Channels  map[string]channel.Channel // by name; receipts are parsed by them
	Keys      *Keys
	Wake      func()                                // tells workers and gateways that something is due; must not block
	ReadMoved func(user string, now wire.ReadState) // tells gateways how far a user has read now; must not block; may be nil
	Retention time.Duration                         // of a conversation whose creation does not name one, in whole milliseconds; 0: for ever
	// NotifyAfter is after how long members of a conversation whose creation does not say so are notified of what they have not read, in
	// whole milliseconds; 0: never.
	NotifyAfter time.Duration

	Version    string                // of the program, for operators
	ReportFile string                // where the acceptance report lies; empty: there is none
	Logger     *slog.Logger          // neither bodies, addresses nor keys are logged
	Registerer prometheus.Registerer // nil: requests are not counted
}

// API serves the paths below /v1/.
type API struct {
	store     *store.Store
	channels  map[string]channel.Channel
	keys      *Keys
	wake      func()
	readMoved func(string, wire.ReadState)
	retention *time.Duration // of new conversations; nil: for ever

	notifyAfter *time.Duration // of new conversations; nil: never
	version     string
	reportFile  string // empty: there is none
	log         *slog.Logger
	mux         *http.ServeMux
	huma        huma.API
	openapi     []byte
	requests    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	reports     *prometheus.CounterVec
	turns       turns         // of requests that need a conversation's lock
	inFlight    chan struct{} // holds one for each request
}

// New makes the API.
func New(c Config) (*API, error) {
	a := &API{store: c.Store, channels: c.Channels, keys: c.Keys, wake: c.Wake, readMoved: c.ReadMoved,
		version: c.Version, reportFile: c.ReportFile, log: c.Logger, mux: http.NewServeMux(), inFlight: make(chan struct{}, MaxInFlight)}
	if c.Retention > 0 {
		a.retention = &c.Retention
	}
	if c.NotifyAfter > 0 {
		a.notifyAfter = &c.NotifyAfter
	}
	if err := a.count(c.Registerer); err != nil {
		return nil, err
	}
	a.huma = humago.New(a.mux, humaConfig())
	a.huma.UseMiddleware(a.authenticate)
	a.conversations()
	a.settings()
	a.members()
	a.mutes()
	a.messages()
	a.recalls()
	a.events()
	a.cursors()
	a.notifications()
	a.reviews()
	a.users()
	a.quiet()
	a.channelOps()
	a.receipts()
	a.operator()
	a.operatorTasks()
	a.operatorConversations()

	var err error
	if a.openapi, err = json.MarshalIndent(a.huma.OpenAPI(), "", "  "); err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	a.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(a.openapi) // the peer is gone: there is nobody to tell
	})
	return a, nil
}

// OpenAPI is the document that describes the API.
func (a *API) OpenAPI() []byte { return a.openapi }

func humaConfig() huma.Config {
	c := huma.DefaultConfig("Tidings", "1")
	c.Info.Description = "Conversations and notifications that never guess: every answer says what is known, and every refusal names its reason.\n\n" +
		"A server authenticates with an API key in the header `Authorization: Bearer tdk_…`. " +
		"The header `" + OperatorHeader + "` names the person on whose behalf it acts, for the journal; the header `" + UserHeader +
		"` names the user that it acts as, which takes a key with the scope `" + store.ScopeActUser + "`. " +
		"A user authenticates with a token in the same place, and acts as that user alone. Unknown fields are ignored.\n\n" +
		"Conversations are followed on a WebSocket at `/v1/ws`; what can be done there can be done here, too, with the same bodies and codes."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{securityScheme: {Type: "http", Scheme: "bearer",
		Description: "An API key. The listed scopes are alternatives: one of them suffices."},
		tokenScheme: {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "A user's token: it acts as that user alone."}}
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", "" // served once, made once, and nothing from elsewhere
	c.CreateHooks = nil
	c.AllowAdditionalPropertiesByDefault = true
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decode}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	return c
}

// register adds an operation that a key with one of the scopes may call; without scopes it is open.
func register[I, O any](a *API, op huma.Operation, scopes []string, handle func(context.Context, *I) (*O, error)) {
	for _, scope := range scopes {
		op.Security = append(op.Security, map[string][]string{securityScheme: {scope}})
	}
	if takesTokens(&op) {
		op.Security = append(op.Security, map[string][]string{tokenScheme: {}})
	}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	problem := a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")
	op.Responses["default"] = &huma.Response{Description: "Refused"}
	for status, r := range op.Responses {
		if status >= "400" { // and default
			r.Content = map[string]*huma.MediaType{"application/problem+json": {Schema: problem}}
		}
	}
	op.MaxBodyBytes = MaxBody + 1 // huma refuses a body that reaches the limit
	op.BodyReadTimeout = RequestTimeout
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err == nil {
			return out, nil
		}
		if op.Method == http.MethodGet && tidings.ErrorCode(err) == tidings.OutcomeUnknown {
			err = &tidings.Error{Code: tidings.Unavailable, Message: "the database's answer was lost", Err: err} // nothing was to be stored
		}
		a.report(ctx, op.Method+" "+op.Path, err)
		p := problemOf(err)
		if p.Code == tidings.NotFound && strings.HasPrefix(op.Path, conversationPath) {
			p.Stored = "no" // the log was asked
		}
		return nil, p
	})
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), RequestTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	sw := &statusWriter{ResponseWriter: w}
	began := time.Now()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			a.log.ErrorContext(ctx, "a request caused a panic", "route", r.Pattern, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			if sw.status == 0 {
				WriteProblem(sw, errors.New("panic"))
			}
		}
		a.observe(r.Pattern, sw.status, time.Since(began))
	}()
	sw.Header().Set("Cache-Control", "no-store")
	select {
	case a.inFlight <- struct{}{}:
		defer func() { <-a.inFlight }()
	default:
		WriteProblem(sw, tidings.Errorf(tidings.RateLimited, "there are too many requests at the same time"))
		return
	}
	handler, pattern := a.mux.Handler(r)
	if pattern == "" {
		a.unrouted(sw, r, handler)
		return
	}
	a.mux.ServeHTTP(sw, r)
}

// unrouted answers what no operation matches, with the status that the mux found.
func (a *API) unrouted(w http.ResponseWriter, r *http.Request, found http.Handler) {
	probe := &statusWriter{ResponseWriter: discard{http.Header{}}}
	found.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", probe.Header().Get("Allow"))
		p := problemOf(tidings.Errorf(tidings.InvalidArgument, "this path has no %s", r.Method))
		p.Status, p.Title = probe.status, http.StatusText(probe.status)
		WriteProblem(w, p)
		return
	}
	WriteProblem(w, tidings.Errorf(tidings.NotFound, "there is no such path"))
}

// refuse answers err and reports it.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a.report(r.Context(), r.Pattern, err)
	WriteProblem(w, err)
}

// report logs what an operator has to know: a defect of ours, and a database that does not answer.
func (a *API) report(ctx context.Context, route string, err error) {
	switch tidings.ErrorCode(err) {
	case tidings.Internal:
		a.log.ErrorContext(ctx, "a request failed", "route", route, "error", err)
	case tidings.Unavailable, tidings.OutcomeUnknown:
		a.log.WarnContext(ctx, "a request could not be carried out", "route", route, "error", err)
	}
}
