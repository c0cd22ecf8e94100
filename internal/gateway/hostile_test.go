// Tests of peers that break the rules or fall silent.

package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/wire"
)

// quick are times that make a test short.
func quick(c *Config) {
	c.PingEvery, c.PongWait = 400*time.Millisecond, 200*time.Millisecond
	c.HelloWait, c.PartialWait, c.SendWait, c.CloseWait = 300*time.Millisecond, 300*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
}

func TestBreachesOfTheFraming(t *testing.T) {
	h := newHouse(t)
	hello := masked(0x81, []byte(`{"t":"conversations","rid":"x"}`))
	unmasked := append([]byte{0x81, 5}, "hello"...)
	for name, test := range map[string]struct {
		bytes []byte
		code  int
	}{
		"unmasked":                   {unmasked, 1002},
		"RSV1, as compressed frames": {masked(0xc1, []byte("x")), 1002},
		"RSV2":                       {masked(0xa1, []byte("x")), 1002},
		"RSV3":                       {masked(0x91, []byte("x")), 1002},
		"a reserved opcode":          {masked(0x83, []byte("x")), 1002},
		"a long ping":                {masked(0x89, make([]byte, 126)), 1002},
		"a fragmented ping":          {masked(0x09, []byte("x")), 1002},
		"a continuation of nothing":  {masked(0x80, []byte("x")), 1002},
		"a message in a message":     {append(masked(0x01, []byte("{")), hello...), 1002},
		"a bad close code":           {masked(0x88, []byte{0, 5}), 1002},
		"a close frame of one byte":  {masked(0x88, []byte{3}), 1005},
		"no UTF-8":                   {masked(0x81, []byte("{\"t\":\"\xff\"}")), 1007},
		"half a rune":                {masked(0x81, []byte("{\"t\":\"\xe2\x82\"}")), 1007},
		"a surrogate in UTF-8":       {masked(0x81, []byte("{\"t\":\"\xed\xa0\x80\"}")), 1007},
		"too large":                  {masked(0x81, bytes.Repeat([]byte(" "), wire.MaxFrame+1)), 1009},
		"too large by its header":    {[]byte{0x81, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4}, 1009},
		"larger than a number":       {[]byte{0x81, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4}, 1009},
		"too large in fragments":     {append(masked(0x01, make([]byte, wire.MaxFrame)), masked(0x80, []byte("x"))...), 1009},
		"binary":                     {masked(0x82, []byte("{}")), 4409},
		"a close by the peer":        {masked(0x88, []byte{0x03, 0xe8, 'b', 'y', 'e'}), 1000},
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hello %v", name, known), func(t *testing.T) {
				p := h.connect()
				if known {
					p.hello(issue(t, "ana"), "a1", "i")
					p.want("welcome")
				}
				p.raw(test.bytes)
				if before := p.ends(test.code); len(before) > 0 {
					t.Errorf("before the end came %q", before)
				}
			})
		}
	}
	for name, first := range map[string]string{"no JSON": "hello", "another type": `{"t":"sync","rid":"1","conv":"c"}`, "nothing": ""} {
		p := h.connect()
		p.text("%s", first)
		if before := p.ends(4409); len(before) > 0 {
			t.Errorf("%s: before the end came %q", name, before)
		}
	}
	h.empty()
}

func TestMalformedFramesAreAnsweredAndTheConnectionLives(t *testing.T) {
	h := newHouse(t)
	p := h.login("ana", "a1")
	for name, frame := range map[string]string{
		"no JSON":        `hello`,
		"an array":       `[]`,
		"nothing":        ``,
		"cut":            `{"t":"sync","rid":"1"`,
		"unknown type":   `{"t":"dance","rid":"1"}`,
		"wrong type":     `{"t":"sync","rid":"1","conv":7,"after":0}`,
		"too deep":       `{"t":"sync","rid":"1","conv":"c","x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`,
		"NUL":            `{"t":"send","rid":"1","conv":"c","cmid":"m","body":"\u0000"}`,
		"surrogate":      `{"t":"send","rid":"1","conv":"c","cmid":"m","body":"\ud800"}`,
		"beyond 2^53":    `{"t":"sync","rid":"1","conv":"c","after":9007199254740992}`,
		"negative":       `{"t":"sync","rid":"1","conv":"c","after":-1}`,
		"no rid":         `{"t":"conversations"}`,
		"seq 0":          `{"t":"ack","rid":"1","conv":"c","seq":0}`,
		"a long name":    `{"t":"sync","rid":"1","conv":"` + strings.Repeat("c", 10_000) + `","after":0}`,
		"a second key":   `{"t":"sync","rid":"1","conv":"c","conv":"d","after":0}`,
		"data no object": `{"t":"send","rid":"1","conv":"c","cmid":"m","body":"","data":[1]}`,
	} {
		p.text("%s", frame)
		if f := p.next(); f.T != wire.TypeError || f.Code != tidings.InvalidArgument {
			t.Errorf("%s is answered with %s", name, f.raw)
		}
	}
	p.text(`{"t":"send","rid":"1","conv":"c","cmid":"m","body":%s}`, quote(strings.Repeat("x", tidings.MaxBody+1)))
	if f := p.next(); f.Code != tidings.TooLarge {
		t.Errorf("a body that is too large is answered with %s", f.raw)
	}
	if f := p.ask("conversations", ""); f.T != "conversations" {
		t.Errorf("afterwards the list is %s", f.raw)
	}
}

func TestSilentPeers(t *testing.T) {
	h := newHouse(t, quick)
	t.Run("no hello", func(t *testing.T) { h.connect().ends(4408) })
	t.Run("pings instead of a hello", func(t *testing.T) {
		p := h.connect()
		p.raw(masked(0x89, []byte("are you there")))
		p.ends(4408)
	})
	t.Run("half a hello", func(t *testing.T) {
		p := h.connect()
		p.raw(masked(0x01, []byte(`{"t":"hel`)))
		p.ends(4003)
	})
	t.Run("no pong", func(t *testing.T) {
		p := h.login("ana", "a1")
		p.ends(4003)
		eventually(t, "the route is gone", func() bool {
			routes, err := h.store.RoutesOf(t.Context(), "gw-1")
			return err == nil && len(routes) == 0
		})
	})
	t.Run("pongs", func(t *testing.T) {
		p := h.login("ana", "a2")
		for range 3 {
			for {
				opcode, payload, err := p.frame()
				if err != nil || opcode != 1 {
					t.Fatal(opcode, payload, err)
				}
				if strings.Contains(string(payload), `"ping"`) {
					break
				}
			}
			p.text(`{"t":"pong"}`)
		}
		if f := p.ask("conversations", ""); f.T != "conversations" {
			t.Errorf("answered with %s", f.raw)
		}
	})
	t.Run("a message that never ends", func(t *testing.T) {
		p := h.login("ana", "a3")
		began := time.Now()
		p.raw(masked(0x01, []byte(`{"t":"sync"`)))
		for range 1000 {
			if _, err := p.conn.Write(masked(0x00, nil)); err != nil {
				t.Fatal(err)
			}
		}
		p.ends(4003)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was closed after %v", took)
		}
	})
	t.Run("a byte now and then", func(t *testing.T) {
		p := h.login("ana", "a4")
		frame := masked(0x81, []byte(`{"t":"conversations","rid":"x"}`))
		done := make(chan struct{})
		defer func() { <-done }()
		go func() {
			defer close(done)
			for _, b := range frame {
				if _, err := p.conn.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond) // the drip is what is tested
			}
		}()
		if code, _ := p.closing(); code != 4003 {
			t.Errorf("closed with %d", code)
		}
		_ = p.conn.Close()
	})
	h.empty()
}

func TestWebSocketPings(t *testing.T) {
	h := newHouse(t)
	p := h.login("ana", "a1")
	p.raw(masked(0x89, []byte("one")))
	if opcode, payload, err := p.frame(); err != nil || opcode != 10 || string(payload) != "one" {
		t.Fatalf("a ping is answered with %d %q, %v", opcode, payload, err)
	}
	// A flood is answered as far as it is read, and costs no memory.
	go func() {
		flood := bytes.Repeat(masked(0x89, make([]byte, 125)), 1000)
		for range 20 {
			_, _ = p.conn.Write(flood)
		}
		_, _ = p.conn.Write(masked(0x81, []byte(`{"t":"conversations","rid":"x"}`)))
	}()
	for {
		opcode, payload, err := p.frame()
		if err != nil {
			t.Fatal(err)
		}
		if opcode == 1 && strings.Contains(string(payload), `"rid":"x"`) {
			return
		}
	}
}

func TestLostLeaseStopsAllWriting(t *testing.T) {
	h := newHouse(t)
	p := h.login("ana", "a1")
	h.hub.held.until.Store(0) // until the next renewal
	p.text(`{"t":"conversations","rid":"x"}`)
	if before := p.ends(4005); len(before) > 0 {
		t.Errorf("without the lease came %q", before)
	}
	if _, answer := knock(t, h.addr); answer.StatusCode != 503 {
		t.Errorf("a new socket is answered with %d", answer.StatusCode)
	}
}

// A peer that vanishes in the midst of everything leaves nothing behind.
func TestAbruptEnds(t *testing.T) {
	h := newHouse(t)
	h.conversation("c", "ana")
	for i := range 30 {
		p := h.connect()
		frames := [][]byte{masked(0x81, fmt.Appendf(nil, `{"t":"hello","rid":"h","token":%q,"device":"a%d","install":"i"}`, issue(t, "ana"), i%5)),
			masked(0x81, fmt.Appendf(nil, `{"t":"send","rid":"s","conv":"c","cmid":"m%d","body":"b"}`, i)),
			masked(0x81, []byte(`{"t":"sync","rid":"y","conv":"c","after":0}`))}
		all := bytes.Join(frames, nil)
		p.raw(all[:len(all)*i/29])
		if i%2 == 0 {
			_ = p.conn.(*net.TCPConn).SetLinger(0) // a reset
		}
		_ = p.conn.Close()
	}
	h.empty()
	eventually(t, "nothing waits", func() bool { return h.waiting.Load() == 0 && h.metrics.queued.Load() == 0 })
	eventually(t, "no route is left", func() bool {
		routes, err := h.store.RoutesOf(t.Context(), "gw-1")
		return err == nil && len(routes) == 0
	})
}

func TestWriteFrames(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 65535, 65536, 100_000} {
		payload := bytes.Repeat([]byte("x"), n)
		p := &peer{t: t, r: nil, conn: &net.TCPConn{}}
		p.r = newReader(appendFrame([]byte(nil), textFrame, payload))
		opcode, got, err := p.frame()
		if err != nil || opcode != 1 || !bytes.Equal(got, payload) {
			t.Errorf("a frame of %d bytes is read as %d bytes, opcode %d, %v", n, len(got), opcode, err)
		}
		if _, _, err := p.frame(); !errors.Is(err, io.EOF) {
			t.Errorf("a frame of %d bytes is followed by %v", n, err)
		}
	}
}
