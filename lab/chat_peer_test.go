// A raw device on the wire, without wits of its own.

package lab_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// frame is one JSON object of the wire.
type frame map[string]any

func (f frame) str(field string) string { s, _ := f[field].(string); return s }
func (f frame) num(field string) int64  { n, _ := f[field].(float64); return int64(n) }
func (f frame) flag(field string) bool  { b, _ := f[field].(bool); return b }
func (f frame) has(field string) bool   { _, ok := f[field]; return ok }
func (f frame) t() string               { return f.str("t") }
func (f frame) code() string            { return f.str("code") } // "" unless it is an error

// sub is the object in a field.
func (f frame) sub(field string) frame { m, _ := f[field].(map[string]any); return m }

// list are the objects of an array.
func (f frame) list(field string) (all []frame) {
	items, _ := f[field].([]any)
	for _, item := range items {
		m, _ := item.(map[string]any)
		all = append(all, m)
	}
	return all
}

// peer is a device on the wire: it sends what a check tells it to send and keeps what it receives. It has no wits of its own;
// the client library has.
type peer struct {
	c    *chat
	conn *websocket.Conn
	user string
	dev  string

	writing sync.Mutex
	rids    int

	mu      sync.Mutex
	stir    chan struct{} // closed and renewed with each frame and at the end
	replies map[string]frame
	pushes  []frame
	taken   int   // pushes that await has returned or passed over
	ended   error // why nothing comes any more
	silent  bool  // does not answer pings
}

// open opens a WebSocket without saying hello.
func (n *node) open(header ...string) (*peer, *http.Response, error) {
	n.c.Helper()
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	dialer := websocket.Dialer{Subprotocols: []string{"tidings.v1"}, HandshakeTimeout: soon}
	conn, response, err := dialer.DialContext(n.c.ctx, strings.Replace(n.url, "http", "ws", 1)+"/v1/ws", h)
	if err != nil {
		return nil, response, err
	}
	p := &peer{c: n.c, conn: conn, stir: make(chan struct{}), replies: map[string]frame{}}
	done := make(chan struct{})
	go func() { // waited for in Cleanup
		defer close(done)
		p.read()
	}()
	n.c.Cleanup(func() { _ = conn.Close(); <-done })
	return p, response, nil
}

// device connects a user's device: hello and welcome. Its install is named like the device unless it is given.
func (n *node) device(user, device string, install ...string) *peer {
	n.c.Helper()
	p, _, err := n.open()
	n.c.Must("open a WebSocket", err)
	p.user, p.dev = user, device
	if w := p.hello(token(user), device, append(install, device+"-install")[0]); w.t() != "welcome" {
		n.c.Fatalf("hello of %s: %v", device, w)
	}
	return p
}

// hello says hello and returns the answer.
func (p *peer) hello(token, device, install string) frame {
	p.c.Helper()
	return p.ask(frame{"t": "hello", "token": token, "device": device, "install": install, "client": "lab"})
}

func (p *peer) read() {
	for {
		_, data, err := p.conn.ReadMessage()
		var f frame
		if err == nil {
			err = json.Unmarshal(data, &f)
		}
		if err == nil && f.t() == "ping" {
			p.mu.Lock()
			silent := p.silent
			p.mu.Unlock()
			if !silent {
				p.write(frame{"t": "pong"})
			}
		}
		p.mu.Lock()
		switch {
		case err != nil:
			p.ended = err
		case f.str("rid") != "":
			if _, twice := p.replies[f.str("rid")]; twice {
				f = frame{"t": "error", "code": "ANSWERED_TWICE", "rid": f["rid"]}
			}
			p.replies[f.str("rid")] = f
		default:
			p.pushes = append(p.pushes, f)
		}
		close(p.stir)
		p.stir = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// write sends a frame as it is. An error is the reader's to tell.
func (p *peer) write(f frame) {
	data, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("write a frame: %v", err))
	}
	p.raw(websocket.TextMessage, data)
}

func (p *peer) raw(kind int, data []byte) {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.conn.WriteMessage(kind, data)
}

// send sends a request and returns its rid.
func (p *peer) send(f frame) string {
	p.writing.Lock()
	p.rids++
	rid := fmt.Sprint(p.rids)
	p.writing.Unlock()
	f = maps.Clone(f)
	f["rid"] = rid
	p.write(f)
	return rid
}

// ask sends a request and waits for the reply, whatever it is.
func (p *peer) ask(f frame) frame {
	p.c.Helper()
	return p.reply(p.send(f))
}

// reply waits for the reply to a request. A connection that ends first answers {"t":"closed"} with the close code.
func (p *peer) reply(rid string) (f frame) {
	p.c.Helper()
	p.wait("the reply "+rid, soon, func() bool {
		f = p.replies[rid]
		if f == nil && p.ended != nil {
			f = p.closing()
		}
		return f != nil
	})
	return f
}

// say sends a message and expects that it is stored; it returns the seq.
func (p *peer) say(conv, cmid, body string) int64 {
	p.c.Helper()
	f := p.ask(frame{"t": "send", "conv": conv, "cmid": cmid, "body": body})
	if f.t() != "sent" {
		p.c.Fatalf("send %s: %v", cmid, f)
	}
	return f.num("seq")
}

// await waits for the next push that matches and passes over those before it.
func (p *peer) await(what string, within time.Duration, match func(frame) bool) (found frame) {
	p.c.Helper()
	p.wait(what, within, func() bool {
		for i := p.taken; i < len(p.pushes); i++ {
			if match(p.pushes[i]) {
				found, p.taken = p.pushes[i], i+1
				return true
			}
		}
		return false
	})
	return found
}

// event waits for the push of an event of a conversation.
func (p *peer) event(conv string, seq int64) frame {
	p.c.Helper()
	return p.await(fmt.Sprintf("event %d of %s at %s", seq, conv, p.dev), soon, func(f frame) bool {
		e := f.sub("event")
		return f.t() == "event" && e.str("conv") == conv && e.num("seq") == seq
	}).sub("event")
}

// received are all pushes of a type so far.
func (p *peer) received(t string) []frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.pushes), func(f frame) bool { return f.t() != t })
}

// closed waits until the connection has ended and returns {"t":"closed","close":code}, 0 when it ended without one.
func (p *peer) closed(within time.Duration) (f frame) {
	p.c.Helper()
	p.wait("the end of a connection", within, func() bool { f = p.closing(); return p.ended != nil })
	return f
}

func (p *peer) closing() frame {
	var closed *websocket.CloseError
	code := 0
	if errors.As(p.ended, &closed) && closed.Code != websocket.CloseAbnormalClosure {
		code = closed.Code
	}
	return frame{"t": "closed", "close": float64(code)}
}

// wait waits until cond, which runs under the lock, holds.
func (p *peer) wait(what string, within time.Duration, cond func() bool) {
	p.c.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		ok, stir := cond(), p.stir
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-stir:
		case <-deadline.C:
			p.c.Fatalf("%s: not within %v", what, within)
		}
	}
}

// drop ends the connection without a word.
func (p *peer) drop() { _ = p.conn.NetConn().Close() }
