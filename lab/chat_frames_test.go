// The checks 05-frame-too-large, 05-malformed-frame, 05-pipelined-requests, 05-inflight-limit.

package lab_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidings-project/tidings/lab"
)

func init() {
	lab.Register(lab.Check{
		ID:     "05-frame-too-large",
		Expect: "65 536 bytes are served; one more, in one frame, in fragments or announced, closes with 1009; 40 that push on for 4 MiB each leave the process below 64 MiB more",
		Run:    frameTooLarge,
	})
	lab.Register(lab.Check{
		ID:     "05-malformed-frame",
		Expect: "each malformed frame: INVALID_ARGUMENT with its rid where it can be read; the same connection serves on, nothing was stored",
		Run:    malformedFrame,
	})
	lab.Register(lab.Check{
		ID:     "05-pipelined-requests",
		Expect: "100 requests of 8 types written before any answer is read: 60 are answered while 40 sends stand still, then these, each once, by rid and in its type",
		Run:    pipelinedRequests,
	})
	lab.Register(lab.Check{
		ID:     "05-inflight-limit",
		Expect: "of 300 sends in flight 44 are refused at once, RATE_LIMITED, unchanged, to be sent again; 256 are stored in order; sent again the 44 are, too",
		Run:    inflightLimit,
	})
}

const maxFrame = 64 << 10

func frameTooLarge(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	request := []byte(`{"t":"conversations","rid":"x","pad":""}`)
	full := bytes.Replace(request, []byte(`""`), fmt.Appendf(nil, `"%s"`, strings.Repeat("x", maxFrame-len(request))), 1)
	s := n.socket("ana", "ana-1")
	s.write(masked(0x81, full))
	c.Equal(fmt.Sprintf("a frame of %d bytes", len(full)), "conversations", s.next().t())

	announced := func(size uint64) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{0x81, 0xff}, size), 1, 2, 3, 4)
	}
	half := make([]byte, maxFrame/2)
	for what, data := range map[string][]byte{
		"one byte more":               masked(0x81, append(slices.Clone(full), ' ')),
		"one byte more, in fragments": slices.Concat(masked(0x01, half), masked(0x00, half), masked(0x80, []byte(" "))),
		"1 TiB, announced":            announced(1 << 40),
		"more than can be, announced": announced(1 << 63),
	} {
		for _, known := range []bool{true, false} {
			s := n.knock()
			if known {
				s = n.socket("ana", "ana-1")
			}
			s.write(data)
			code, before := s.ends()
			c.Equal(fmt.Sprintf("%s, after hello %v: close code, frames before it", what, known), []int{1009, 0}, []int{code, len(before)})
		}
	}

	const many, each = 40, 4 * mib
	before := n.resident()
	c.Together("oversized frames", many, func(i int) {
		s := n.socket(fmt.Sprint("u", i), "d")
		s.write(announced(1<<40), make([]byte, each))
		code, _ := s.ends()
		if code != 1009 {
			c.Errorf("an endless frame is closed with %d", code)
		}
	})
	grown := n.resident() - before
	c.True(fmt.Sprintf("%d frames of 1 TiB, %d MiB of each sent: memory grown by less than 64 MiB", many, each/mib), grown < 64*mib)
	c.Figure("memory grown", float64(grown), "B")
	c.Equal("the process serves on", "conversations", n.device("ben", "ben-1").ask(frame{"t": "conversations"}).t())
}

func malformedFrame(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	n.conversation("c-1", "ana")
	s := n.socket("ana", "ana-1")
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	tried := 0
	for what, text := range map[string]string{
		"no JSON":                   `hello`,
		"nothing":                   ``,
		"a list":                    `[]`,
		"cut off":                   `{"t":"send","rid":"R","conv":"c-1"`,
		"two objects":               `{"t":"conversations","rid":"R"}{}`,
		"no type":                   `{"rid":"R"}`,
		"an unknown type":           `{"t":"dance","rid":"R"}`,
		"a reserved type":           `{"t":"signal","rid":"R","conv":"c-1"}`,
		"a number as conv":          `{"t":"sync","rid":"R","conv":7,"after":0}`,
		"a string as after":         `{"t":"sync","rid":"R","conv":"c-1","after":"0"}`,
		"a fraction":                `{"t":"sync","rid":"R","conv":"c-1","after":1.5}`,
		"an exponent":               `{"t":"sync","rid":"R","conv":"c-1","after":1e3}`,
		"2^53":                      `{"t":"sync","rid":"R","conv":"c-1","after":9007199254740992}`,
		"below zero":                `{"t":"sync","rid":"R","conv":"c-1","after":-1}`,
		"null as body":              `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":null}`,
		"an object as body":         `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":{}}`,
		"no body":                   `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1"}`,
		"no cmid":                   `{"t":"send","rid":"R","conv":"c-1","body":"x"}`,
		"a list as data":            `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":"x","data":[1]}`,
		"U+0000":                    `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":"\u0000"}`,
		"half a surrogate":          `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":"\ud800"}`,
		"one key twice":             `{"t":"send","rid":"R","conv":"c-1","conv":"c-2","cmid":"m-1","body":"x"}`,
		"deep, in an unknown field": `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":"x","y":` + deep + `}`,
		"deep, in data":             `{"t":"send","rid":"R","conv":"c-1","cmid":"m-1","body":"x","data":{"y":` + deep + `}}`,
		"deep, alone":               deep,
		"a long conv":               `{"t":"sync","rid":"R","conv":"` + strings.Repeat("c", 200) + `","after":0}`,
		"no id as conv":             `{"t":"sync","rid":"R","conv":"a b","after":0}`,
		"hello again":               `{"t":"hello","rid":"R","token":"x","device":"ana-1","install":"i"}`,
	} {
		tried++
		rid := ""
		if strings.Contains(text, `"R"`) {
			rid = fmt.Sprint("r", tried)
		}
		s.write(masked(0x81, []byte(strings.Replace(text, `"R"`, `"`+rid+`"`, 1))))
		f := s.next()
		c.Equal(what, "INVALID_ARGUMENT no unchanged "+rid, fmt.Sprint(f.code(), " ", f.str("retry"), " ", f.str("stored"), " ", f.str("rid")))
	}
	c.Examined("malformed frames", tried)
	c.Equal("head of the conversation", 1, c.head("c-1"))
	s.text(frame{"t": "send", "rid": "last", "conv": "c-1", "cmid": "m-1", "body": "x"})
	f := s.next()
	c.Equal("the same connection sends", "sent 2", fmt.Sprint(f.t(), " ", f.num("seq")))
}

func pipelinedRequests(t *lab.T) {
	c := newChat(t)
	n := c.node("n1")
	n.conversation("c-held", "ana")
	n.conversation("c-free", "ana")
	p := n.device("ana", "ana-1")
	leave := c.occupy("c-held")
	kinds := []struct {
		reply   string
		request frame
	}{
		{"events", frame{"t": "sync", "conv": "c-free", "after": 0}},
		{"fetched", frame{"t": "fetch", "conv": "c-free", "seq": 1}},
		{"acked", frame{"t": "ack", "conv": "c-free", "seq": 1}},
		{"read", frame{"t": "read", "conv": "c-free", "seq": 1}},
		{"conversations", frame{"t": "conversations"}},
		{"outcome", frame{"t": "outcome", "conv": "c-free", "cmid": "m-1"}},
	}
	refresh := frame{"t": "refresh", "token": token("ana")} // one at a time is taken
	var held, free []string
	want := map[string]string{}
	for i := range 100 {
		if i%5 < 2 {
			rid := p.send(message("c-held", fmt.Sprint("m-", i), "x"))
			held, want[rid] = append(held, rid), "sent"
			continue
		}
		k := kinds[i%len(kinds)]
		if i == 52 {
			k.reply, k.request = "refreshed", refresh
		}
		rid := p.send(k.request)
		free, want[rid] = append(free, rid), k.reply
	}
	right := 0
	count := func(rids []string) {
		for _, rid := range rids {
			if f := p.reply(rid); f.t() == want[rid] {
				right++
			} else {
				c.Errorf("request %s is answered with %v, not %s", rid, f, want[rid])
			}
		}
	}
	count(free)
	c.Equal("answered, each in its type, while the sends stand still", 60, right)
	c.Equal("sends without an answer meanwhile", 40, len(slices.DeleteFunc(slices.Clone(held), func(rid string) bool { return !p.unanswered(rid) })))
	leave()
	count(held)
	c.Equal("answered in the end", 100, right)
	var seqs []int64
	for _, rid := range held {
		seqs = append(seqs, p.reply(rid).num("seq"))
	}
	c.True("the sends have rising seqs", slices.IsSorted(seqs) && seqs[0] == 2 && seqs[39] == 41)
	c.Equal("a later request", "conversations", p.ask(frame{"t": "conversations"}).t()) // the marker: what came twice has come
	p.mu.Lock()
	defer p.mu.Unlock()
	c.Equal("rids answered", 102, len(p.replies)) // with hello and the marker
	twice := 0
	for _, f := range p.replies {
		if f.code() == "ANSWERED_TWICE" {
			twice++
		}
	}
	c.Equal("rids answered twice", 0, twice)
}

func inflightLimit(t *lab.T) {
	c := newChat(t)
	n := c.node("n1", with("TIDINGS_GATEWAY_RATE", "1000"))
	n.conversation("c-1", "ana")
	p := n.device("ana", "ana-1")
	leave := c.occupy("c-1")
	rids := make([]string, 300)
	for i := range rids {
		rids[i] = p.send(message("c-1", fmt.Sprint("m-", i), "x"))
	}
	refused := 0
	for _, rid := range rids[256:] {
		f := p.reply(rid)
		if fmt.Sprint(f.code(), f.str("stored"), f.str("retry")) == "RATE_LIMITEDunchangedsame" && f.num("retry_after_ms") > 0 {
			refused++
		}
	}
	c.Equal("refused at once, with a hint", 44, refused)
	c.Equal("head of the log meanwhile", 1, c.head("c-1"))
	leave()
	stored := 0
	for i, rid := range rids[:256] {
		if f := p.reply(rid); f.t() == "sent" && f.num("seq") == int64(2+i) {
			stored++
		}
	}
	c.Equal("sent, each at its place", 256, stored)
	var again atomic.Int64
	for i := 256; i < len(rids); i++ {
		if f := p.insist("c-1", fmt.Sprint("m-", i), "x", &again); f.t() == "sent" && !f.flag("dup") {
			stored++
		}
	}
	c.Equal("sent in the end", 300, stored)
	cmids := map[string]int{}
	for _, e := range c.log("c-1") {
		cmids[e.cmid]++
	}
	delete(cmids, "")
	c.Equal("messages in the log", 300, len(cmids))
	c.Equal("head of the log", 301, c.head("c-1"))
	c.whole()
}
