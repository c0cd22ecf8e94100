// A scripted provider: how it treats a request.

package channeltest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// sendBody is what the channels of this package send.
type sendBody struct {
	Ref       string          `json:"ref"`
	Address   string          `json:"address"`
	Title     string          `json:"title"`
	Body      string          `json:"body"`
	Data      json.RawMessage `json:"data,omitempty"`
	ExpiresAt time.Time       `json:"expires_at"`
}

type sendAnswer struct {
	ID       string `json:"id"`
	Replayed bool   `json:"replayed"`
}

type queryAnswer struct {
	Ref      string   `json:"ref"`
	Accepted int      `json:"accepted"`
	IDs      []string `json:"ids"`
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, mode string) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return // the request did not arrive whole: nothing is accepted
	}
	var body sendBody
	if err := json.Unmarshal(raw, &body); err != nil || body.Ref == "" {
		http.Error(w, "the body is not JSON with a ref", http.StatusBadRequest)
		return
	}
	step := s.scripts.next(mode, KindSend, body.Ref, body.Address)
	accept := step.Do != DoRefuse && step.Do != DoDrop && step.Do != DoLose
	sum := sha256.Sum256(raw)
	entry, full := s.ledger.record(Entry{At: time.Now(), Mode: mode, Kind: KindSend, Ref: body.Ref, Do: step.Do,
		Key: r.Header.Get("Idempotency-Key"), Address: body.Address, BodyHash: hex.EncodeToString(sum[:])}, accept)
	if full {
		w.WriteHeader(http.StatusInsufficientStorage)
		return
	}
	s.answer(w, r, step, sendAnswer{ID: entry.ID, Replayed: entry.Replayed})
}

func (s *Server) query(w http.ResponseWriter, r *http.Request) {
	ref := r.URL.Query().Get("ref")
	if ref == "" {
		http.Error(w, "ref is missing", http.StatusBadRequest)
		return
	}
	step := s.scripts.next(ModeSMS, KindQuery, ref, "")
	now := time.Now()
	if _, full := s.ledger.record(Entry{At: now, Mode: ModeSMS, Kind: KindQuery, Ref: ref, Do: step.Do}, false); full {
		w.WriteHeader(http.StatusInsufficientStorage)
		return
	}
	answer := queryAnswer{Ref: ref, IDs: []string{}}
	if step.Do != DoNotFound {
		answer.IDs = s.ledger.visible(ModeSMS, ref, now)
		answer.Accepted = len(answer.IDs)
	}
	s.answer(w, r, step, answer)
}

// answer plays the rest of a step. What is to be remembered has been recorded.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, step Step, v any) {
	if step.DelayMS > 0 && !s.wait(r, time.Duration(step.DelayMS)*time.Millisecond) {
		return
	}
	switch step.Do {
	case DoHang, DoLose:
		s.wait(r, time.Hour)
		abort(w)
	case DoReset, DoDrop:
		abort(w)
	case DoCut:
		text, _ := json.Marshal(v)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
		abort(w)
	case DoRefuse, DoStatus:
		if step.RetryAfterS > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(step.RetryAfterS))
		}
		w.WriteHeader(step.Status)
	default:
		writeJSON(w, v)
	}
}

// wait waits and tells whether the client is still there and the server still runs.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.closing:
	}
	return false
}

// abort ends the connection with a reset.
func abort(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // closes without an answer
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
