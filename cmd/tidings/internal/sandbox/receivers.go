// The webhook receiver of dev and demo, and its pages.

package sandbox

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tidings-project/tidings/channel/webhook"
)

// Hook is a webhook that arrived with a good signature.
type Hook struct {
	At   time.Time       `json:"at"`
	ID   string          `json:"webhook_id"`
	Body json.RawMessage `json:"body"`
}

// kept is how many of the newest arrivals can be looked at.
const kept = 200

// shelf keeps the newest arrivals.
type shelf[T any] struct {
	mu    sync.Mutex
	items []T
	added func(T) // may be nil; called with each arrival
}

func (s *shelf[T]) add(item T) {
	s.mu.Lock()
	s.items = append(s.items, item)
	if len(s.items) > kept {
		s.items = s.items[1:]
	}
	s.mu.Unlock()
	if s.added != nil {
		s.added(item)
	}
}

func (s *shelf[T]) all() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]T{}, s.items...)
}

// receivers serves POST /hook, which takes signed webhooks, and shows what arrived: GET /hooks and GET /mails.
type receivers struct {
	http *http.Server
	done chan error
}

func startReceivers(l net.Listener, secret webhook.Secret, mails *shelf[Mail], hooks *shelf[Hook]) *receivers {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if err := webhook.Verify(r.Header, []webhook.Secret{secret}, time.Now(), body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		id := r.Header.Get(webhook.HeaderID)
		hooks.add(Hook{At: time.Now().UTC(), ID: id, Body: body})
		show(w, map[string]string{"id": "hook-" + id})
	})
	mux.HandleFunc("GET /hooks", func(w http.ResponseWriter, _ *http.Request) { show(w, hooks.all()) })
	mux.HandleFunc("GET /mails", func(w http.ResponseWriter, _ *http.Request) { show(w, mails.all()) })
	s := &receivers{http: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, done: make(chan error, 1)}
	go func() { s.done <- s.http.Serve(l) }()
	return s
}

func (s *receivers) close() error {
	err := s.http.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func show(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the peer is gone: there is nobody to tell
}
