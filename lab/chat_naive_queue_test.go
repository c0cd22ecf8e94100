// The check 05-control-unbounded-queue.

package lab_test

import (
	"net"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "05-control-unbounded-queue",
		Expect: "4 rounds of 6 MiB from a log to a receiver that reads nothing: with a bound the receiver is cut off and the memory stays; " +
			"without one the process grows in every round by as much as was logged",
		Run: unboundedQueue,
	})
}

// pusher writes frames to a socket from a queue. With a bound of bytes it cuts off a receiver for which more would wait.
type pusher struct {
	conn  net.Conn
	bound int // 0: none

	mu      sync.Mutex
	more    sync.Cond
	queue   [][]byte
	waiting int
	cut     bool
	done    sync.WaitGroup
}

// newPusher makes a pusher with a receiver that reads nothing.
func newPusher(t *lab.T, bound int) *pusher {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.Must("listen", err)
	defer listener.Close()
	receiver, err := net.Dial("tcp", listener.Addr().String())
	t.Must("connect", err)
	conn, err := listener.Accept()
	t.Must("accept", err)
	p := &pusher{conn: conn, bound: bound}
	p.more.L = &p.mu
	p.done.Go(p.write)
	t.Cleanup(func() {
		p.end()
		_ = receiver.Close()
		p.done.Wait()
	})
	return p
}

func (p *pusher) push(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return
	}
	p.queue, p.waiting = append(p.queue, frame), p.waiting+len(frame)
	if p.bound > 0 && p.waiting > p.bound {
		p.cutOff()
	}
	p.more.Signal()
}

func (p *pusher) write() {
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.cut {
			p.more.Wait()
		}
		if p.cut {
			p.mu.Unlock()
			return
		}
		frame := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		_, err := p.conn.Write(frame)
		p.mu.Lock()
		if p.waiting -= len(frame); err != nil {
			p.cutOff()
		}
		p.mu.Unlock()
	}
}

// cutOff needs the lock.
func (p *pusher) cutOff() {
	p.cut, p.queue = true, nil
	_ = p.conn.Close()
	p.more.Signal()
}

func (p *pusher) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutOff()
}

func (p *pusher) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func unboundedQueue(t *lab.T) {
	c := newChat(t)
	c.bare("c-1", "ana", "sid")
	const rounds, each, size = 4, 400, 16_000
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	// grown tells by how much the memory of this process grew in each round.
	grown := func(p *pusher, from int64) (by []int) {
		for range rounds {
			before := heap()
			c.exec(`WITH c AS (UPDATE tidings.conversation SET next_seq = next_seq + $1 WHERE conv_id = 'c-1' RETURNING next_seq - $1 AS first)
				INSERT INTO tidings.event (conv_id, seq, kind, mid, sender_user, cmid, body)
				SELECT 'c-1', c.first + i, 'msg', gen_random_uuid(), 'ana', 'm-' || c.first + i, repeat('x', $2) FROM c, generate_series(0, $1 - 1) i`, each, size)
			rows, err := c.pool.Query(c.ctx, `SELECT seq, body FROM tidings.event WHERE conv_id = 'c-1' AND seq > $1 ORDER BY seq`, from)
			c.Must("read the log", err)
			var body []byte
			n, err := pgx.ForEachRow(rows, []any{&from, &body}, func() error {
				p.push(append([]byte(nil), body...))
				return nil
			})
			c.Must("read the log", err)
			c.Equal("events read and pushed", each, n.RowsAffected())
			by = append(by, heap()-before)
		}
		return by
	}
	bounded, naive := newPusher(t, queueBytes), newPusher(t, 0)
	const round = each * size
	more := func(by []int) (full int) { // the first round may go to the buffers of the kernel in part
		for _, b := range by[1:] {
			if b > round/2 {
				full++
			}
		}
		return full
	}
	withBound := grown(bounded, 2)
	c.True("with a bound: cut off", bounded.isCut())
	c.Equal("with a bound: rounds in which the memory grew", 0, more(withBound))
	without := grown(naive, c.head("c-1"))
	c.Equal("without: cut off", false, naive.isCut())
	c.Exposed("without a bound: rounds in which the memory grew", more(withBound), more(without))
	c.Equal("without a bound: that is all of them but the first, which filled buffers", rounds-1, more(without))
	naive.mu.Lock()
	defer naive.mu.Unlock()
	c.Figure("bytes that wait for one receiver in the end", float64(naive.waiting), "B")
}
