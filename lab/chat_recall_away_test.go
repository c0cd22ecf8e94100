// The checks 11-recall-offline-device, 11-downloaded-copy-limit, 11-access-time-check.

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tidings-project/tidings/client"
	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID: "11-recall-offline-device",
		Expect: "u-cai is away while rc-1 is sent and recalled; a sync from 3 and one from 0 give seq 4 with recalled=true and without body and data, and the recall as seq 5; so do fetch, HTTP and the " +
			"list; an application is told the same and never the content",
		Run: recallOffline,
	})
	lab.Register(lab.Check{
		ID: "11-downloaded-copy-limit",
		Expect: "two devices that have rc-2 and rc-3, one of them the sender's with rc-2 in its outbox's file, are away while rc-3 and then rc-2 are recalled: the server has neither any more, they keep both; " +
			"when they sync both go, also from the file",
		Run: downloadedCopy,
	})
	lab.Register(lab.Check{
		ID:     "11-access-time-check",
		Expect: "u-cai has left at 9 and sees [3, 9]: fetch 6 is given with its body, fetch 10 and 2 are NOT_MEMBER, over WebSocket and HTTP; 4 and 7 are recalled, for u-cai as well",
		Run:    accessTime,
	})
}

func recallOffline(t *lab.T) {
	g := newGroup(t)
	g.play(5)
	cai := g.n.device("u-cai", "u-cai-d1")
	seen := 0
	judge := func(what string, events []frame) {
		g.Helper()
		var told []string
		for _, e := range events {
			seen++
			told = append(told, fmt.Sprintf("%d %s recalled=%t body=%t data=%t target=%d", e.num("seq"), e.str("kind"), e.flag("recalled"), e.has("body"), e.has("data"), e.num("target")))
		}
		g.Equal(what, []string{"4 msg recalled=true body=false data=false target=0", "5 recall recalled=false body=false data=false target=4"}, told)
	}
	for _, after := range []int64{3, 0} {
		what := fmt.Sprint("a sync from ", after)
		judge(what, cai.ask(frame{"t": "sync", "conv": "c-g", "epoch": 0, "after": after, "limit": 100}).list("events")[(3-after)/3:])
		judge(what+" over HTTP", g.n.as("u-cai", "GET", fmt.Sprint("/v1/conversations/c-g/events?after=", after), nil).body.list("events")[(3-after)/3:])
	}
	var fetched []frame
	for seq := 4; seq <= 5; seq++ {
		fetched = append(fetched, cai.ask(frame{"t": "fetch", "conv": "c-g", "epoch": 0, "seq": seq}).sub("event"))
	}
	judge("fetches", fetched)
	_, text := g.fetches(cai, g.n, "c-g", 5)
	text += textOf(g.listed(cai, g.n, "c-g"))
	g.Equal("answers to fetches and lists with the content", 0, strings.Count(text, content("rc-1")))

	app := g.app(g.n.url, "u-cai", "u-cai-d2")
	app.hears(5)
	g.Equal("an application's copy", "4 recalled", app.holds(4))
	bodies := 0
	for _, u := range app.told() {
		if a, ok := u.(client.Arrived); ok && (a.Event.Body != nil || a.Event.Data != nil) {
			bodies++
		}
	}
	g.Equal("events with content that it was told", 0, bodies)
	g.Examined("events", seen+len(app.arrived("c-g")))
}

// cable is a device's way to a node, which can be pulled out.
type cable struct {
	mu    sync.Mutex
	out   bool
	conns []net.Conn
}

func (k *cable) use(config *client.Config) {
	config.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.out {
			return nil, errors.New("the cable is out")
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err == nil {
			k.conns = append(k.conns, conn)
		}
		return conn, err
	}
}

func (k *cable) pull() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out = true
	for _, conn := range k.conns {
		_ = conn.Close()
	}
	k.conns = nil
}

func (k *cable) plug() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out = false
}

func downloadedCopy(t *lab.T) {
	g := newGroup(t)
	k, file := &cable{}, filepath.Join(t.TempDir(), "outbox")
	tablet := g.app(g.n.url, "u-ben", "u-ben-d2", k.use)
	laptop := g.app(g.n.url, "u-ana", "u-ana-d2", k.use, func(c *client.Config) { c.Outbox, c.Install = file, "" })
	online := g.app(g.n.url, "u-ben", "u-ben-d1")
	away := []*app{tablet, laptop}

	g.play(5)
	pending, err := laptop.Send(client.Message{Conv: "c-g", Cmid: "rc-2", Body: content("rc-2"), Data: []byte(`{"also":"` + content("rc-2") + `"}`)})
	g.Must("queue rc-2", err)
	g.at++
	g.is("rc-2", laptop.answered(pending).Seq)
	g.play(7)
	onDisk := func() bool {
		b, err := os.ReadFile(file)
		g.Must("read the outbox", err)
		return strings.Contains(string(b), content("rc-2"))
	}
	held := func(when, six, seven string) {
		g.Helper()
		for _, a := range away {
			g.Equal(when, []string{"6 " + six, "7 " + seven}, []string{a.holds(6), a.holds(7)})
			g.Examined("copies", 2)
		}
		g.Equal(when+": the content of rc-2 in the sender's outbox", six == "content", onDisk())
	}
	for _, a := range append(away, online) {
		a.hears(7)
	}
	held("while they are online", "content", "content")

	k.pull()
	for _, a := range away {
		a.becomes(client.Offline)
	}
	g.play(10)
	online.hears(10)
	held("away, rc-3 recalled", "content", "content")
	g.at++
	g.takeBack("rc-2-recall", 6)
	online.hears(11)
	held("away, rc-2 recalled, too", "content", "content")
	g.Equal("the online device's copy", []string{"6 recalled", "7 recalled"}, []string{online.holds(6), online.holds(7)})
	rows := g.rows()
	g.Equal("the rows", []string{"6 msg u-ana rc-2 recalled by 11", "7 msg u-ana rc-3 recalled by 8"}, rows[5:7])

	k.plug()
	for _, a := range away {
		a.hears(11)
		lost := a.losses()
		slices.Sort(lost)
		g.Equal("told as recalled", []int64{6, 7}, lost[len(lost)-2:])
	}
	g.Until("the content has left the file", soon, func() bool { return !onDisk() })
	held("after the sync", "recalled", "recalled")
}

func accessTime(t *lab.T) {
	g := newGroup(t)
	g.play(10)
	g.Equal("the interval", "[3, 9]", one[string](g.scene, `SELECT format('[%s, %s]', join_seq, leave_seq) FROM tidings.member WHERE conv_id = 'c-g' AND user_id = 'u-cai'`))
	cai, ben := g.n.device("u-cai", "u-cai-d1"), g.n.device("u-ben", "u-ben-d1")
	got, _ := g.fetches(cai, g.n, "c-g", 11)
	g.Equal("what u-cai fetches", []string{"1 NOT_MEMBER", "2 NOT_MEMBER", "3 join", "4 msg", "5 recall", "6 msg", "7 msg", "8 recall", "9 leave", "10 NOT_MEMBER", "11 NOT_MEMBER"}, got)
	fetched := func(p *peer, seq int64) (state string) {
		g.Helper()
		e := p.ask(frame{"t": "fetch", "conv": "c-g", "epoch": 0, "seq": seq}).sub("event")
		return fmt.Sprintf("%d body=%t recalled=%t", seq, e.has("body"), e.flag("recalled"))
	}
	for who, p := range map[string]*peer{"u-cai": cai, "u-ben": ben} {
		g.Equal("what of it has a body, for "+who, []string{"4 body=false recalled=true", "6 body=true recalled=false", "7 body=false recalled=true"},
			[]string{fetched(p, 4), fetched(p, 6), fetched(p, 7)})
	}
	g.Equal("the body of 6 is that of rc-2", true, cai.ask(frame{"t": "fetch", "conv": "c-g", "epoch": 0, "seq": 6}).sub("event").str("body") == content("rc-2"))
	got, _ = g.fetches(ben, g.n, "c-g", 11)
	g.Equal("what u-ben, who stays, fetches of the end", []string{"10 msg", "11 NOT_FOUND"}, got[9:])
	g.Examined("fetches", 4*11)
}
