// A way to the database on which the connections that listen can be lost in several ways, and no others.

package lab_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab/fault"
)

// theListener is the application_name of a connection on which a gateway listens.
const theListener = "tidings listen"

// listenWay forwards connections to the database.
type listenWay struct {
	c        *chat
	ln       net.Listener
	upstream *url.URL
	work     sync.WaitGroup

	mu    sync.Mutex
	open  chan struct{} // closed: connections that are to listen are let through
	hole  bool          // what later connections that are to listen say is swallowed
	conns map[*listenConn]bool
}

// listenConn is a forwarded connection.
type listenConn struct {
	client, server *net.TCPConn
	listens        bool
	swallows       atomic.Bool
	swallowed      atomic.Int64 // bytes
}

func (c *chat) listenWay() *listenWay {
	c.Helper()
	upstream, err := url.Parse(c.url())
	c.Must("read the URL of the database", err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	c.Must("listen", err)
	w := &listenWay{c: c, ln: ln, upstream: upstream, open: make(chan struct{}), conns: map[*listenConn]bool{}}
	close(w.open)
	w.work.Go(w.accept)
	c.Cleanup(func() {
		_ = ln.Close()
		w.letThrough()
		w.mu.Lock()
		for l := range w.conns {
			l.end()
		}
		w.mu.Unlock()
		w.work.Wait()
	})
	return w
}

// url is the database's by this way; name "" leaves the application_name to the client.
func (w *listenWay) url(name string) string {
	u := *w.upstream
	u.Host = w.ln.Addr().String()
	if name != "" {
		u.RawQuery += "&application_name=" + url.PathEscape(name)
	}
	return u.String()
}

func (w *listenWay) accept() {
	for {
		client, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.work.Go(func() { w.serve(client.(*net.TCPConn)) })
	}
}

func (w *listenWay) serve(client *net.TCPConn) {
	defer client.Close()
	start, err := readStart(client)
	if err != nil {
		return
	}
	listens := bytes.Contains(start, []byte("application_name\x00"+theListener+"\x00"))
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if listens {
		<-open
	}
	server, err := net.Dial("tcp", w.upstream.Host)
	if err != nil {
		return
	}
	l := &listenConn{client: client, server: server.(*net.TCPConn), listens: listens}
	w.mu.Lock()
	l.swallows.Store(listens && w.hole)
	w.conns[l] = true
	w.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(io.MultiReader(bytes.NewReader(start), client), server) })
	pumps.Go(func() { l.pump(server, client) })
	pumps.Wait()
	w.mu.Lock()
	delete(w.conns, l)
	w.mu.Unlock()
}

// readStart reads the first packet of a connection, which names the client: its length with itself in four bytes, then as much.
func readStart(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n < 8 || n > 10_000 {
		return nil, fmt.Errorf("a first packet of %d bytes", n)
	}
	start := append(head, make([]byte, n-4)...)
	_, err := io.ReadFull(r, start[4:])
	return start, err
}

// pump forwards one direction and ends both with it.
func (l *listenConn) pump(from io.Reader, to net.Conn) {
	defer l.end()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if l.swallows.Load() {
			l.swallowed.Add(int64(n))
		} else if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *listenConn) end() { _ = l.client.Close(); _ = l.server.Close() }

// listening are the present connections that listen.
func (w *listenWay) listening() (all []*listenConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.conns {
		if l.listens && !l.swallows.Load() {
			all = append(all, l)
		}
	}
	return all
}

// keepAway lets no new connection listen until letThrough.
func (w *listenWay) keepAway() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

// letThrough lets connections listen again.
func (w *listenWay) letThrough() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hole = false
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

// terminate ends the backends of the connections that listen.
func (w *listenWay) terminate() fault.Receipt {
	w.c.Helper()
	ended := 0
	for _, l := range w.listening() {
		port := l.server.LocalAddr().(*net.TCPAddr).Port
		if one[bool](w.c.scene, `SELECT coalesce(bool_and(pg_terminate_backend(pid, $2)), false) FROM pg_stat_activity WHERE client_port = $1 AND application_name = '`+theListener+`'`,
			port, soon.Milliseconds()) {
			ended++
		}
	}
	return fault.New("terminate", "the backends that listen", count(ended, "are gone"))
}

// reset resets the connections that listen, as a middlebox does: the client sees RST.
func (w *listenWay) reset() fault.Receipt {
	all := w.listening()
	for _, l := range all {
		_ = l.client.SetLinger(0) // so that Close sends RST (tcp(7), socket(7))
		l.end()
	}
	return fault.New("reset", "the connections that listen", count(len(all), "were reset"))
}

// swallow lets the connections that listen hang with all bytes swallowed, also later ones if later. The proof comes from swallowed.
func (w *listenWay) swallow(later bool) (gone []*listenConn) {
	gone = w.listening()
	for _, l := range gone {
		l.swallows.Store(true)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hole = later
	return gone
}

func swallowed(gone []*listenConn) fault.Receipt {
	hit := 0
	for _, l := range gone {
		if l.swallowed.Load() > 0 {
			hit++
		}
	}
	return fault.New("black hole", "the connections that listen", count(hit, "had bytes swallowed"))
}

func count(n int, what string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n, " ", what)
}

// ear listens to what gateways tell each other: without a number, a probe or a look at the database, whatever it misses.
type ear struct {
	mu    sync.Mutex
	heard []string
	times int // how often it began to listen
}

// ear listens at a URL of the database, again and again, until the check ends.
func (c *chat) ear(url string) *ear {
	c.Helper()
	e := &ear{}
	ctx, stop := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() { // waited for in Cleanup
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			e.listen(ctx, url)
		}
	}()
	c.Cleanup(func() { stop(); <-done })
	return e
}

func (e *ear) listen(ctx context.Context, url string) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return
	}
	defer conn.Close(ctx)
	if _, err = conn.Exec(ctx, "LISTEN tidings_conv"); err != nil {
		return
	}
	e.mu.Lock()
	e.times++
	e.mu.Unlock()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.heard = append(e.heard, n.Payload)
		e.mu.Unlock()
	}
}
