// The line of a device: the way from its client to a gateway, with switches for trouble.

package front

import (
	"net/http"
	"strings"
	"sync"

	"github.com/tidings-project/tidings/cmd/tidings/internal/relay"
)

// lineMost is how many WebSockets one line carries: the same page may be open more than once.
const lineMost = 8

// line is what a device connects through.
type line struct {
	device   string
	prefers  string // the name of a gateway
	children *Children
	tell     func(format string, args ...any)

	mu        sync.Mutex
	online    bool
	loseReply bool // the next one
	shuffle   bool
	gateway   string // of the newest link
	links     map[*relay.Link]bool
	taken     int // places for links, of those that are being made, too
	closed    bool
	work      sync.WaitGroup // of what holds a place
}

func newLine(device, prefers string, c *Children) *line {
	return &line{device: device, prefers: prefers, children: c, tell: c.log.add, online: true, links: map[*relay.Link]bool{}}
}

// lineState is a line as GET /dev/state shows it.
type lineState struct {
	Online    bool   `json:"online"`
	Gateway   string `json:"gateway"` // that it leads to at present; "": nobody is connected
	Shuffle   bool   `json:"shuffle"`
	LoseReply bool   `json:"lose_reply"`
}

func (l *line) state() lineState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := lineState{Online: l.online, Shuffle: l.shuffle, LoseReply: l.loseReply}
	if len(l.links) > 0 {
		s.Gateway = l.gateway
	}
	return s
}

// lineChange is the body of POST /dev/lines/{device}: what is absent stays.
type lineChange struct {
	Online    *bool `json:"online"`
	Cut       bool  `json:"cut"`
	LoseReply *bool `json:"lose_reply"`
	Shuffle   *bool `json:"shuffle"`
}

func (l *line) change(c lineChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Online != nil && *c.Online != l.online {
		l.online = *c.Online
		if l.online {
			l.tell("%s is online again", l.device)
		} else {
			l.tell("%s is offline", l.device)
		}
	}
	if c.LoseReply != nil {
		l.loseReply = *c.LoseReply
	}
	if c.Shuffle != nil {
		l.shuffle = *c.Shuffle
	}
	if c.Cut {
		l.tell("the connection of %s was cut", l.device)
	}
	if c.Cut || !l.online {
		l.cut()
	}
}

// cut needs the lock.
func (l *line) cut() {
	for link := range l.links {
		link.Cut()
	}
}

// loses tells, once, that the next reply is to be lost.
func (l *line) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	loses := l.loseReply
	l.loseReply = false
	return loses
}

func (l *line) shuffles() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shuffle
}

// ready answers whether a connection would be taken, as the gateway behind the line does.
func (l *line) ready(w http.ResponseWriter, r *http.Request) {
	g, err := l.way()
	if err != nil {
		refuse(w, err)
		return
	}
	proxyTo(g.address).ServeHTTP(w, withPath(r, "/readyz"))
}

// way is the gateway that the line leads to now.
func (l *line) way() (*child, error) {
	l.mu.Lock()
	online := l.online
	l.mu.Unlock()
	if !online {
		return nil, unavailable("%s is offline", l.device)
	}
	if g := l.children.pick(l.prefers); g != nil {
		return g, nil
	}
	return nil, unavailable("no gateway is alive")
}

// connect carries a WebSocket until it ends.
func (l *line) connect(w http.ResponseWriter, r *http.Request) {
	g, err := l.way()
	if err == nil {
		err = l.takePlace()
	}
	if err != nil {
		refuse(w, err)
		return
	}
	defer l.givePlace()
	link, err := relay.Join(w, r, "ws"+strings.TrimPrefix(g.address(), "http")+"/v1/ws")
	if err != nil {
		return // the client was told
	}
	traffic := &traffic{line: l, link: link}
	defer traffic.end()
	if !l.add(link, g.name) {
		link.Cut()
		return
	}
	link.Run(traffic.down)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.links, link)
}

func (l *line) takePlace() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return unavailable("the development server stops")
	}
	if l.taken == lineMost {
		return unavailable("%s has %d connections already", l.device, lineMost)
	}
	l.taken++
	l.work.Add(1)
	return nil
}

func (l *line) givePlace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	l.work.Done()
}

// add is false when the line was switched off, or closed, while the link was made.
func (l *line) add(link *relay.Link, gateway string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.online {
		return false
	}
	l.links[link], l.gateway = true, gateway
	return true
}

// close ends all links for good and returns when they have ended.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	l.cut()
	l.mu.Unlock()
	l.work.Wait()
}
