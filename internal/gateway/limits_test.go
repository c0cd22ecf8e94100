// Tests of the limits on requests, receivers and connections.

package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

func TestPipelinedRequestsAreAnsweredOnceEach(t *testing.T) {
	h := newHouse(t)
	h.conversation("c", "ana")
	p := h.login("ana", "a1")
	const n = 100
	var all []byte
	for i := range n {
		var f string
		switch i % 4 {
		case 0:
			f = fmt.Sprintf(`{"t":"send","rid":"r%d","conv":"c","cmid":"m%d","body":"b"}`, i, i)
		case 1:
			f = fmt.Sprintf(`{"t":"sync","rid":"r%d","conv":"c","after":0}`, i)
		case 2:
			f = fmt.Sprintf(`{"t":"ack","rid":"r%d","conv":"c","seq":1}`, i)
		default:
			f = fmt.Sprintf(`{"t":"outcome","rid":"r%d","conv":"c","cmid":"m%d"}`, i, i)
		}
		all = append(all, masked(0x81, []byte(f))...)
	}
	p.raw(all)
	seen, last := map[string]bool{}, int64(0)
	for len(seen) < n {
		f := p.next()
		switch {
		case f.Rid == "":
			continue // a push
		case f.T == wire.TypeError || seen[f.Rid]:
			t.Fatalf("answered with %s", f.raw)
		case f.T == wire.TypeSent && f.Seq <= last:
			t.Fatalf("seq %d was given after %d", f.Seq, last)
		case f.T == wire.TypeSent:
			last = f.Seq
		}
		seen[f.Rid] = true
	}
}

func TestTooManyRequestsAreRefusedAndNoneIsLost(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Rate, c.Burst = 1000, 2000 })
	h.conversation("c", "ana")
	p := h.login("ana", "a1")
	lock, err := h.store.Pool().Begin(t.Context()) // makes the sends wait
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `SELECT 1 FROM tidings.conversation WHERE conv_id = 'c' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	const n = 400
	for i := range n {
		p.text(`{"t":"send","rid":"r%d","conv":"c","cmid":"m%d","body":"b"}`, i, i)
	}
	refused, rids := 0, map[string]bool{}
	for range n - wire.MaxInflight {
		f := p.next()
		if f.Code != tidings.RateLimited || f.RetryAfterMS == 0 || f.Stored != "unchanged" {
			t.Fatalf("answered with %s", f.raw)
		}
		refused++
		rids[f.Rid] = true
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(rids) < n {
		if f := p.next(); f.Rid != "" {
			if f.T != wire.TypeSent || rids[f.Rid] {
				t.Fatalf("answered with %s", f.raw)
			}
			rids[f.Rid] = true
		}
	}
}

func TestRequestsPerSecond(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.Rate, c.Burst = 5, 10 })
	p := h.login("ana", "a1")
	for i := range 50 {
		p.text(`{"t":"conversations","rid":"r%d"}`, i)
	}
	refused := 0
	for range 50 {
		switch f := p.next(); {
		case f.Code == tidings.RateLimited && f.RetryAfterMS > 0:
			refused++
		case f.T != "conversations":
			t.Fatalf("answered with %s", f.raw)
		}
	}
	if refused < 35 || refused > 40 {
		t.Errorf("%d of 50 were refused, want about 40", refused)
	}
}

func TestSlowReceiver(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.SendWait, c.CloseWait, c.QueueBytes = 2*time.Second, patience, 128<<10 })
	h.conversation("c", "ana", "ben")
	slow := h.login("ben", "slow")
	if err := slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if err := h.roster.of("ben")[0].conn.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	quickly, ana := h.login("ben", "quick"), h.login("ana", "a1")
	got := make(chan int)
	const n = 100
	go func() {
		count := 0
		defer func() { got <- count }()
		for count < n {
			opcode, payload, err := quickly.frame()
			if err != nil {
				return
			}
			if opcode == 1 && strings.Contains(string(payload), `"t":"event"`) {
				count++
			}
		}
	}()
	body := quote(strings.Repeat("x", 16<<10))
	for i := range n {
		if f := ana.ask("send", `"conv":"c","cmid":"m%d","body":%s`, i, body); f.T != "sent" {
			if f.Code != tidings.RateLimited {
				t.Fatalf("answered with %s", f.raw)
			}
			time.Sleep(time.Duration(f.RetryAfterMS) * time.Millisecond)
			if f := ana.ask("send", `"conv":"c","cmid":"m%d","body":%s`, i, body); f.T != "sent" {
				t.Fatalf("answered with %s", f.raw)
			}
		}
		if queued := h.metrics.queued.Load(); queued > (burstSize+2)*(128<<10) {
			t.Fatalf("%d bytes are queued", queued)
		}
	}
	if count := <-got; count != n {
		t.Errorf("the quick receiver got %d of %d events", count, n)
	}
	slow.ends(4002) // what was on its way when it stopped reading, and then why
	_ = slow.conn.Close()
	eventually(t, "the slow session is gone", func() bool {
		return !slices.ContainsFunc(h.roster.of("ben"), func(s *session) bool { return s.device == "slow" })
	})
	eventually(t, "nothing is queued", func() bool { return h.metrics.queued.Load() == 0 })
}

func TestOneWhoReadsNoAnswers(t *testing.T) {
	h := newHouse(t, func(c *Config) {
		c.Rate, c.Burst, c.SendWait, c.CloseWait = 1e6, 1e6, time.Second, 500*time.Millisecond
	})
	h.conversation("c", "ana")
	h.exec(`INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, request_hash, body)
		SELECT 'c', n, 'msg', gen_random_uuid(), 'ana', 'k' || n, '\x00', repeat('x', 16000) FROM generate_series(2, 200) n`)
	h.exec(`UPDATE tidings.conversation SET next_seq = 201`)
	p := h.login("ana", "a1")
	_ = p.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	most := int64(0)
	for i := 0; ; i++ {
		_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
		_, err := p.conn.Write(masked(0x81, fmt.Appendf(nil, `{"t":"sync","rid":"r%d","conv":"c","after":0,"limit":500}`, i)))
		most = max(most, h.metrics.queued.Load())
		if err != nil || h.roster.size() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if limit := int64(3 * h.cfg.QueueBytes); most > limit {
		t.Errorf("%d bytes were queued, at most %d may be", most, limit)
	}
	h.empty()
	eventually(t, "nothing is queued or waiting", func() bool { return h.metrics.queued.Load() == 0 && h.waiting.Load() == 0 })
}

func TestConnectionLimits(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.MaxConnections, c.MaxGreeting = 3, 2 })
	first, second := h.connect(), h.connect()
	p, answer := knock(t, h.addr)
	if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" {
		t.Errorf("a socket beyond those that may greet is answered with %d %v", answer.StatusCode, answer.Header)
	}
	_ = p.conn.Close()
	for i, p := range []*peer{first, second} {
		p.hello(issue(t, "ana"), fmt.Sprint("a", i), "i")
		p.want("welcome")
	}
	h.login("ana", "a2")
	if p, answer = knock(t, h.addr); answer.StatusCode != 503 {
		t.Errorf("a socket beyond all that there may be is answered with %d", answer.StatusCode)
	}
	_ = p.conn.Close()
	_ = first.conn.Close()
	eventually(t, "a place is free", func() bool {
		p, answer := knock(t, h.addr)
		_ = p.conn.Close()
		return answer.StatusCode == 101
	})
}

// Refreshes wait with the hellos of others: a session has one there at a time.
func TestOneRefreshAtATime(t *testing.T) {
	h := newHouse(t)
	p := h.login("ana", "a1")
	release := make(chan struct{})
	for range h.greeters.size {
		h.greeters.do(func() { <-release })
	}
	text := issue(t, "ana")
	p.text(`{"t":"refresh","rid":"r1","token":%q}`, text)
	p.text(`{"t":"refresh","rid":"r2","token":%q}`, text)
	if f := p.next(); f.Rid != "r2" || f.Code != tidings.RateLimited {
		t.Errorf("the second one is answered with %s", f.raw)
	}
	close(release)
	if f := p.next(); f.Rid != "r1" || f.T != wire.TypeRefreshed {
		t.Errorf("the first one is answered with %s", f.raw)
	}
	if f := p.ask("refresh", `"token":%q`, text); f.T != wire.TypeRefreshed {
		t.Errorf("a later one is answered with %s", f.raw)
	}
}

// A handshake that may be repeated names a pause, whatever it was refused for.
func TestARefusedHandshakeNamesAPause(t *testing.T) {
	for _, err := range []error{&tidings.Error{Code: tidings.Unavailable, Message: "no database"}, errors.New("a defect")} {
		w := httptest.NewRecorder()
		newGateway(Config{}).deny(w, 0, err)
		if w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"retry_after_ms":1000`) {
			t.Errorf("%v is answered with %d %v %s", err, w.Code, w.Header(), w.Body)
		}
	}
}

// A peer that has answered the close frame leaves the end of the connection to the server, which does not wait for it.
func TestAPeerThatHasAnsweredTheCloseIsLetGo(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.CloseWait = 20 * time.Second })
	p := h.login("ana", "a1")
	h.roster.of("ana")[0].close(wire.CloseReplaced, "")
	if opcode, _, err := p.frame(); opcode != 8 || err != nil {
		t.Fatalf("a frame of type %d, %v", opcode, err)
	}
	p.raw(masked(0x88, []byte{wire.CloseReplaced >> 8, wire.CloseReplaced & 0xff}))
	began := time.Now()
	eventually(t, "the session is gone", func() bool { return h.roster.size() == 0 })
	if took := time.Since(began); took > h.cfg.CloseWait/2 {
		t.Errorf("it took %v", took)
	}
}
