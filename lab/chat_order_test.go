// The check 40-fifo.

package lab_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/pgproxy"
)

func init() {
	lab.Register(lab.Check{
		ID: "40-fifo",
		Expect: "4 devices send without waiting for answers to 3 conversations, while these are held, transactions are terminated and single messages are refused by the database: " +
			"in each log the messages of a device stand in the order in which it sent them; with the answers to syncs and questions for outcomes the answers are those of a " +
			"plain log; doctored orders and histories are rejected",
		Run: inOrder,
	})
}

const (
	fifoConvs = 3
	fifoPeers = 4
	fifoRound = 12 // messages that a device sends in a row
	fifoLast  = 3  // rounds at least
)

// fifo is the scene of 40-fifo.
type fifo struct {
	*chat
	convs     []string
	histories map[string]*history
	over      atomic.Bool // the disturbances are

	mu     sync.Mutex
	order  map[string][]string // by conversation and device: the cmids in the order sent
	doubts []transmitted       // whose outcome is unknown
	sent   []transmitted
	poison int // refused by the database
	down   int // refused because the database seemed to be away
}

// transmitted is a message on its way.
type transmitted struct {
	conv, cmid, body string
	rid              string
	at               int64
}

func inOrder(t *lab.T) {
	f := &fifo{chat: newChat(t), histories: map[string]*history{}, order: map[string][]string{}}
	way := f.proxy()
	a := f.node("a", through(way), with("TIDINGS_GATEWAY_RATE", "100000"))
	b := f.node("b", with("TIDINGS_GATEWAY_RATE", "100000"))
	for i := range fifoConvs {
		conv := fmt.Sprintf("c-%d", i)
		a.conversation(conv, "ben", "ana")
		f.convs, f.histories[conv] = append(f.convs, conv), newHistory()
	}
	f.exec(`ALTER TABLE tidings.event ADD CONSTRAINT no_poison CHECK (body <> 'poison')`)
	var peers []*peer
	for i := range fifoPeers {
		peers = append(peers, a.device("ana", fmt.Sprintf("ana-%d", i)))
	}
	readers := []*peer{a.device("ben", "ben-1"), b.device("ben", "ben-2")}
	asker := b.device("ana", "ana-asks")

	ended := make(chan struct{})
	go func() { // received below
		defer close(ended)
		f.Together("devices", fifoPeers+len(readers)+1, func(i int) {
			r := rand.New(rand.NewPCG(t.Seed(), uint64(i)))
			switch {
			case i < fifoPeers:
				f.sender(peers[i], i, r)
			case i < fifoPeers+len(readers):
				f.reader(readers[i-fifoPeers], i, r)
			default:
				f.asker(asker, i, r)
			}
		})
	}()
	f.disturb(t.Rand(), way, peers)
	<-ended
	f.Note("%d sends had an unknown outcome, %d were refused by the database, %d because it seemed to be away", len(f.doubts), f.poison, f.down)
	f.True("some outcomes were unknown", len(f.doubts) > 0)
	f.True("some messages were refused by the database", f.poison > 0)
	for _, m := range f.doubts { // one that is not stored now never will be: nobody sends it any more
		if seq := f.outcome(asker, fifoPeers, m); seq > 0 {
			f.histories[m.conv].add(fifoPeers, m.at, sendOp{"ana/" + m.cmid}, sentAt{seq, false, true})
		}
	}
	for _, conv := range f.convs { // a last look, after everything
		f.sync(readers[0], fifoPeers, conv, 100)
	}

	var logs [][]placedMessage
	for _, conv := range f.convs {
		logs = append(logs, f.messages(conv))
	}
	messages, broken := f.astray(logs)
	f.Equal("messages that stand behind one that their device sent later", 0, broken)
	f.Examined("messages", messages)
	f.whole()

	doctored := slices.Clone(logs[0])
	last := len(doctored) - 1
	for doctored[last].Device != doctored[0].Device {
		last--
	}
	doctored[0], doctored[last] = doctored[last], doctored[0]
	logs[0] = doctored
	_, broken = f.astray(logs)
	f.True("an order with two messages exchanged is rejected", broken > 0)
	f.judgeHistories()
}

// judgeHistories has porcupine judge what was told, and then what was not.
func (f *fifo) judgeHistories() {
	f.Helper()
	first := []string{"join ben", "join ana"} // ben, who reads, sees all of it
	lies := map[string]bool{}
	for _, conv := range f.convs {
		h := f.histories[conv]
		began := time.Now()
		f.Equal("what was told of "+conv+" is what a log would have told", porcupine.Ok, possible(first, h.ops, 30*time.Second))
		f.Examined("answers", len(h.ops))
		f.Figure("time to judge "+fmt.Sprint(len(h.ops))+" answers", float64(time.Since(began).Milliseconds()), "ms")
		for lie, ops := range h.doctored() {
			lies[lie] = true
			f.Equal(conv+": "+lie, porcupine.Illegal, possible(first, ops, 30*time.Second))
		}
	}
	f.Equal("sorts of doctored histories", 4, len(lies))
}

// disturb has sends meet held conversations, a terminated transaction, and one that is terminated a second time.
func (f *fifo) disturb(r *rand.Rand, way *pgproxy.Proxy, peers []*peer) {
	f.Helper()
	defer f.over.Store(true)
	for i := range 6 {
		convs := []string{f.convs[r.IntN(len(f.convs))]}
		var trap *pgproxy.Trap
		if i%3 == 0 { // a batch finds its conversations held when more messages wait behind it
			trap = way.Arm(pgproxy.Rule{What: "a batch", Match: theSend, When: pgproxy.Before, Do: pgproxy.Hold})
			f.Fault(trap.Wait(soon))
			for _, p := range peers {
				p.flush()
			}
			convs = f.convs
		}
		var held []func()
		for _, conv := range convs {
			held = append(held, f.occupy(conv))
		}
		if trap != nil {
			trap.Release()
		}
		pid := f.behind()
		proof := fmt.Sprintf("backend %d waited for it in a send", pid)
		if i%3 > 0 {
			f.Fault(f.terminate(pid))
		}
		if i%3 > 1 {
			f.Fault(f.terminate(f.behind())) // the gateway has submitted it once more
		}
		for _, leave := range held {
			leave()
		}
		f.Fault(fault.New("hold", "the rows of conversations", proof))
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // so that some rounds meet nothing
	}
}

// behindSQL finds a send that waits for who holds a conversation by occupy, perhaps behind others that do. Sends also wait a moment for
// each other.
const behindSQL = `WITH RECURSIVE behind AS (
		SELECT a.pid, unnest(pg_blocking_pids(a.pid)) AS blocker FROM pg_stat_activity a
		 WHERE a.datname = current_database() AND a.state = 'active' AND a.wait_event_type = 'Lock' AND a.query LIKE '%tidings.send_rows%'
		UNION SELECT b.pid, unnest(pg_blocking_pids(b.blocker)) FROM behind b)
	SELECT coalesce(min(b.pid), 0) FROM behind b JOIN pg_stat_activity h ON h.pid = b.blocker
	 WHERE h.state = 'idle in transaction' AND h.query LIKE 'SELECT FROM tidings.conversation%FOR UPDATE'`

// behind waits until a send waits for a conversation that is held, and returns its backend.
func (f *fifo) behind() (pid int) {
	f.Helper()
	f.Until("a send waits for the held conversation", soon, func() bool {
		pid = one[int](f.scene, behindSQL)
		return pid != 0
	})
	return pid
}

// placedMessage is a message of a log.
type placedMessage struct{ Device, Cmid string }

// messages are the messages of a log in its order.
func (f *fifo) messages(conv string) []placedMessage {
	f.Helper()
	rows, err := f.pool.Query(f.ctx, `SELECT sender_device, cmid FROM tidings.event WHERE conv_id = $1 AND kind = 'msg' ORDER BY seq`, conv)
	f.Must("read a log", err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[placedMessage])
	f.Must("read a log", err)
	return all
}

// astray counts the messages of logs, and those that stand behind one that their device sent later.
func (f *fifo) astray(logs [][]placedMessage) (messages, broken int) {
	for i, conv := range f.convs {
		next := map[string]int{} // by device
		for _, m := range logs[i] {
			messages++
			at := slices.Index(f.order[conv+" "+m.Device], m.Cmid)
			if at < next[m.Device] {
				broken++
			}
			next[m.Device] = max(next[m.Device], at+1)
		}
	}
	return messages, broken
}

// sender sends rounds of messages, each in one go, and notes what was answered.
func (f *fifo) sender(p *peer, client int, r *rand.Rand) {
	for round := 0; round < fifoLast || !f.over.Load() && f.ctx.Err() == nil && !f.Failed(); round++ {
		var all []transmitted
		for k := range fifoRound {
			m := transmitted{conv: f.convs[r.IntN(len(f.convs))], cmid: fmt.Sprintf("%s.%d.%d", p.dev, round, k), body: "hello"}
			switch {
			case k == 5: // a message that the device before sends, too, perhaps
				m.conv, m.cmid = f.convs[0], fmt.Sprintf("%s.%d.shared", p.dev, round)
			case k == 7 && r.IntN(2) == 0:
				m.conv, m.cmid = f.convs[0], fmt.Sprintf("ana-%d.%d.shared", (client+1)%fifoPeers, round)
			case r.IntN(25) == 0:
				m.body = "poison"
			}
			f.change(func() { f.order[m.conv+" "+p.dev] = append(f.order[m.conv+" "+p.dev], m.cmid) })
			m.at = f.histories[m.conv].now()
			m.rid = p.send(message(m.conv, m.cmid, m.body))
			all = append(all, m)
		}
		for _, m := range all {
			switch reply := p.reply(m.rid); {
			case reply.t() == "sent":
				f.histories[m.conv].add(client, m.at, sendOp{"ana/" + m.cmid}, sentAt{reply.num("seq"), reply.flag("dup"), false})
				f.change(func() { f.sent = append(f.sent, m) })
			case reply.code() == "OUTCOME_UNKNOWN":
				f.change(func() { f.doubts = append(f.doubts, m) })
			case m.body == "poison" && reply.code() == "INVALID_ARGUMENT":
				f.change(func() { f.poison++ })
			case reply.code() == "UNAVAILABLE" && reply.str("stored") == "unchanged": // it was behind one whose outcome is unknown
				f.change(func() { f.down++ })
			default:
				f.Errorf("send %s: %v", m.cmid, reply)
				return
			}
		}
	}
}

func (f *fifo) change(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

// asker asks what became of messages that were sent.
func (f *fifo) asker(p *peer, client int, r *rand.Rand) {
	for n := 0; n < 30 || !f.over.Load() && f.ctx.Err() == nil && !f.Failed(); n++ {
		f.mu.Lock()
		all := f.sent
		f.mu.Unlock()
		if len(all) > 0 {
			f.outcome(p, client, all[r.IntN(len(all))])
		}
		pauseABit()
	}
}

// outcome asks where a message is stored; 0: nowhere.
func (f *fifo) outcome(p *peer, client int, m transmitted) int64 {
	h := f.histories[m.conv]
	at := h.now()
	reply := p.ask(frame{"t": "outcome", "conv": m.conv, "cmid": m.cmid})
	switch {
	case reply.t() == "outcome":
		h.add(client, at, outcomeOp{"ana/" + m.cmid}, storedAt{reply.num("seq")})
	case reply.code() != "UNAVAILABLE": // the conversation was locked
		f.Errorf("ask for the outcome of %s: %v", m.cmid, reply)
	}
	return reply.num("seq")
}

// reader syncs from anywhere until the senders are about to end.
func (f *fifo) reader(p *peer, client int, r *rand.Rand) {
	for n := 0; n < 10 || !f.over.Load() && f.ctx.Err() == nil && !f.Failed(); n++ {
		conv := f.convs[r.IntN(len(f.convs))]
		f.sync(p, client, conv, int64(r.IntN(20)))
		pauseABit()
	}
}

// sync reads everything after a seq, up to a head.
func (f *fifo) sync(p *peer, client int, conv string, back int64) {
	h := f.histories[conv]
	known := int64(0)
	if back > 0 {
		known = max(0, p.pushedTo(conv)-back)
	}
	at := h.now()
	reply := p.ask(frame{"t": "sync", "conv": conv, "after": known, "limit": 500})
	if reply.t() != "events" {
		f.Errorf("sync: %v", reply)
		return
	}
	if reply.flag("more") {
		return // it tells nothing of the end
	}
	told := page{head: reply.num("head")}
	for _, e := range reply.list("events") {
		key := e.str("kind") + " " + e.str("sender")
		if e.str("kind") == "msg" {
			key = e.str("sender") + "/" + e.str("cmid")
		}
		told.keys = append(told.keys, key)
	}
	h.add(client, at, syncOp{known}, told)
}
