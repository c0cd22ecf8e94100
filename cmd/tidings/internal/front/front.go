// Package front is what a browser sees of `tidings dev`: the demo page, the child processes behind it, and the switches for trouble. The trouble happens here, on the
// lines of the devices and to the child processes: what serves is the product as it is.
package front

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
)

// Options say what the front stands before.
type Options struct {
	Children *Children
	Box      *sandbox.Sandbox
	Page     http.Handler // serves the demo page at GET /, GET /demo/… and GET /client.js
	Key      string       // of the API, with every scope: the page shows it
	Conv     string       // the conversation of the demo
	People   []Person
	Copies   Copies
}

// Person is one of the two of the demo.
type Person struct {
	User    string
	Name    string
	Token   string            // the page connects with it
	Gateway string            // the one that the devices prefer
	Devices []Device          // each has a line
	Reached map[string]string // address by channel
}

// Device is one of a person's.
type Device struct {
	ID   string
	Kind string // phone or laptop
}

// Front is an http.Handler.
type Front struct {
	o     Options
	log   *journal
	lines map[string]*line
	mux   *http.ServeMux
	http  *http.Client // asks the API

	life   context.Context // of what goes on when the request that began it is gone
	end    context.CancelFunc
	copies sync.WaitGroup

	mu     sync.Mutex
	busy   string        // "", or what goes on with the database
	over   chan struct{} // closed when that ends; nil: nothing goes on
	backup *backup
}

// New makes a front that is reached at a port of 127.0.0.1. Close it before its children are stopped.
func New(o Options, port int) (*Front, error) {
	f := &Front{o: o, log: o.Children.log, lines: map[string]*line{}, mux: http.NewServeMux(), http: o.Children.http}
	f.life, f.end = context.WithCancel(context.Background())
	var err error
	if f.backup, err = o.Copies.last(); err != nil {
		return nil, err
	}
	for _, p := range o.People {
		for _, d := range p.Devices {
			f.lines[d.ID] = newLine(d.ID, p.Gateway, o.Children)
		}
	}
	api := proxyTo(o.Children.api.address)
	for _, path := range []string{"/v1/", "/console", "/console/", "/healthz", "/metrics"} {
		f.mux.Handle(path, api)
	}
	for _, path := range []string{"GET /v1/ws", "GET /readyz"} {
		f.mux.HandleFunc(path, f.toGateway)
	}
	for _, path := range []string{"GET /{$}", "GET /demo/", "GET /client.js"} {
		f.mux.Handle(path, o.Page)
	}
	f.mux.Handle("/dev/", guard(f.switches(), port))
	return f, nil
}

// switches are the routes below /dev/.
func (f *Front) switches() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dev/state", f.showState)
	mux.HandleFunc("GET /dev/line/{device}/v1/ws", f.onLine((*line).connect))
	mux.HandleFunc("GET /dev/line/{device}/readyz", f.onLine((*line).ready))
	mux.HandleFunc("POST /dev/lines/{device}", f.changeLine)
	mux.HandleFunc("POST /dev/gateways/{name}", f.orderGateway)
	mux.HandleFunc("POST /dev/backup", f.takeBackup)
	mux.HandleFunc("POST /dev/restore", f.putBack)
	mux.HandleFunc("POST /dev/notifications", f.notify)
	mux.HandleFunc("GET /dev/notifications", f.notifications)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, notFound("there is no such path")) })
	return mux
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.mux.ServeHTTP(w, r) }

// Close ends the lines, and waits for what goes on with the database.
func (f *Front) Close() {
	f.mu.Lock()
	f.end() // nothing is begun any more
	f.mu.Unlock()
	for _, l := range f.lines {
		l.close()
	}
	f.copies.Wait()
}

// toGateway passes a request on to a gateway that serves.
func (f *Front) toGateway(w http.ResponseWriter, r *http.Request) {
	g := f.o.Children.pick("")
	if g == nil {
		refuse(w, unavailable("no gateway is alive"))
		return
	}
	proxyTo(g.address).ServeHTTP(w, r)
}

// proxyTo passes requests on, WebSockets too, to what is at address by then.
func proxyTo(address func() string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			if to, err := url.Parse(address()); err == nil {
				r.SetURL(to)
			}
			r.Out.Host = r.In.Host // the console compares it with the origin
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			refuse(w, unavailable("the process that serves this does not answer; it is started again by itself"))
		},
		ErrorLog: quiet,
	}
}

// withPath is a request for another path.
func withPath(r *http.Request, path string) *http.Request {
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = path, ""
	return r
}

// quiet is a log of what happens to peers that go away.
var quiet = log.New(io.Discard, "", 0)
