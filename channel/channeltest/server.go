// The doubles as an HTTP server.

package channeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const maxRequest = 1 << 20

// Options configure the doubles. The zero value listens on a free port of 127.0.0.1, keeps keys for ever and shows
// acceptances at once.
type Options struct {
	Addr         string
	KeyRetention time.Duration // how long push remembers a key; 0: for ever
	VisibleAfter time.Duration // how long after an acceptance sms shows it to a query
}

// Server is the three doubles on one port: POST /push/send, POST /sms/send, GET /sms/messages?ref=, POST /plain/send, and
// the control requests that Control makes.
type Server struct {
	*Control
	http    *http.Server
	done    chan error
	closing chan struct{}
	once    sync.Once

	scripts scripts
	ledger  ledger
}

// Start starts the doubles in this process. Close them.
func Start(o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("start the doubles: %w", err)
	}
	s := &Server{
		Control: Connect("http://" + listener.Addr().String()),
		done:    make(chan error, 1),
		closing: make(chan struct{}),
	}
	s.ledger.reset()
	s.ledger.set(o.KeyRetention, o.VisibleAfter)
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// Close ends every request, hanging ones too, and waits for the server.
func (s *Server) Close() error {
	s.once.Do(func() { close(s.closing) })
	s.Control.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.done <- http.ErrServerClosed // a second Close finds the same
	return err
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, mode := range []string{ModePush, ModeSMS, ModePlain} {
		mux.HandleFunc("POST /"+mode+"/send", func(w http.ResponseWriter, r *http.Request) { s.send(w, r, mode) })
	}
	mux.HandleFunc("GET /sms/messages", s.query)
	for _, mode := range []string{ModePush, ModePlain} {
		mux.HandleFunc("/"+mode+"/messages", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) })
	}
	mux.HandleFunc("POST /script", s.control(func(body []byte, _ *http.Request) (any, error) {
		var sc Script
		if err := json.Unmarshal(body, &sc); err != nil {
			return nil, err
		}
		return struct{}{}, s.scripts.add(sc)
	}))
	mux.HandleFunc("POST /reset", s.control(func([]byte, *http.Request) (any, error) {
		s.scripts.reset()
		s.ledger.reset()
		return struct{}{}, nil
	}))
	mux.HandleFunc("POST /settings", s.control(func(body []byte, _ *http.Request) (any, error) {
		var set settings
		if err := json.Unmarshal(body, &set); err != nil {
			return nil, err
		}
		s.ledger.set(time.Duration(set.KeyRetentionMS)*time.Millisecond, time.Duration(set.VisibleAfterMS)*time.Millisecond)
		return struct{}{}, nil
	}))
	mux.HandleFunc("GET /log", s.control(func(_ []byte, r *http.Request) (any, error) {
		q := r.URL.Query()
		after, _ := strconv.ParseInt(q.Get("after"), 10, 64)
		return s.ledger.read(q.Get("mode"), q.Get("ref"), after, 10_000), nil
	}))
	mux.HandleFunc("GET /counts", s.control(func(_ []byte, r *http.Request) (any, error) {
		return s.ledger.count(r.URL.Query().Get("mode"), r.URL.Query().Get("ref")), nil
	}))
	mux.HandleFunc("POST /receipt", s.control(s.receipt))
	return mux
}

type settings struct {
	KeyRetentionMS int64 `json:"key_retention_ms"`
	VisibleAfterMS int64 `json:"visible_after_ms"`
}

// control answers 200 with JSON, or 400 with the error's text.
func (s *Server) control(do func(body []byte, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		var answer any
		if err == nil {
			answer, err = do(body, r)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, answer)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
