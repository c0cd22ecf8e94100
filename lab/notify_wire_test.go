// The checks 33-dial-refused, 33-one-call-one-request.

package lab_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/tcpproxy"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-dial-refused",
		Expect: "refused, not resolved, certificate not trusted, no TLS: NOT_SENT with no request on the wire, PENDING without doubt, " +
			"the budget untouched; then ACCEPTED, 1 external send",
		Run: dialRefused,
	})
	lab.Register(lab.Check{
		ID: "33-one-call-one-request",
		Expect: "after resets of kept connections, stream errors, GOAWAY and redirects, for sends and for queries: as many requests " +
			"arrive as the journal has attempts that began; in a storm of faults never more, for any task",
		Run: oneCallOneRequest,
	})
}

// dialRefused lets a channel fail before there is a connection, in every way, and then not.
func dialRefused(t *lab.T) {
	s := newScene(t)
	doubles := strings.TrimPrefix(s.doubles.URL(), "http://")
	proxy := tcpproxy.Start(t, doubles)
	refusal := proxy.Refuse()
	secure, open := s.peer(channeltest.HTTPS1), s.peer(channeltest.HTTP1)
	heard := func(p *channeltest.HTTPPeer) string {
		if p.Conns() == 0 {
			return ""
		}
		return fmt.Sprintf("%d connections to the peer, %d requests", p.Conns(), len(p.Requests()))
	}

	for i, c := range []struct {
		what, url string
		receipt   func() fault.Receipt
	}{
		{"refused", "http://" + proxy.Addr(), func() fault.Receipt { return refusal }},
		{"not resolved", "http://nowhere.invalid", func() fault.Receipt {
			proof := ""
			if _, err := net.DefaultResolver.LookupHost(s.ctx, "nowhere.invalid"); errors.As(err, new(*net.DNSError)) {
				proof = "the resolver has no address for it"
			}
			return fault.New("no such name", "the provider's name", proof)
		}},
		{"certificate not trusted", secure.URL(), func() fault.Receipt {
			return fault.New("TLS failure", "a certificate that nobody trusts", heard(secure))
		}},
		{"no TLS", strings.Replace(open.URL(), "http:", "https:", 1), func() fault.Receipt {
			return fault.New("TLS failure", "a peer that does not speak TLS", heard(open))
		}},
	} {
		door := channel.NewDoor(channel.DoorOptions{TLS: &tls.Config{}})
		w := s.worker("unlucky", s.through(push, c.url, door))
		task := s.tell(fmt.Sprintf("user-%d", i), push)
		s.rounds(w, 1)
		t.Fault(c.receipt())

		t.Equal(c.what+": journal", []tidings.Outcome{tidings.NotSent}, s.journal(task))
		r := s.where(task)
		t.Equal(c.what+": state", tidings.Pending, r.State)
		t.Equal(c.what+": in doubt", false, r.InDoubt)
		t.Equal(c.what+": budget", tidings.DefaultBudget, r.Budget)
		t.True(c.what+": counts as never called", r.FirstCallAt == nil)
		t.Equal(c.what+": bytes that left", 0, door.Stats().Written)

		if c.what == "refused" {
			t.Must("open the port again", proxy.Accept())
		} else {
			w = s.worker("lucky", serve(push)...)
		}
		s.rounds(w, 1)
		t.Equal(c.what+": journal at the end", []tidings.Outcome{tidings.NotSent, tidings.Accepted}, s.journal(task))
		s.state(c.what, tidings.Sent, task)
		t.Equal(c.what+": external sends", 1, s.sends(task))
	}
	t.Equal("requests at the peers behind TLS", 0, len(secure.Requests())+len(open.Requests()))
}

// oneCallOneRequest counts on the wire what the journal says, after one fault each and in a storm of them.
func oneCallOneRequest(t *lab.T) {
	s := newScene(t)
	redirect := func(status int) channeltest.Fault {
		return channeltest.Fault{Name: fmt.Sprint(status), Status: status, Header: http.Header{"Location": {"/elsewhere"}}}
	}
	faults := map[channeltest.Protocol][]channeltest.Fault{
		channeltest.HTTP1: {{Name: "reset", Reset: true}, {Name: "close", Close: true}, redirect(302), redirect(307), redirect(308)},
		channeltest.HTTP2: {{Name: "reset", Reset: true}, {Name: "GOAWAY", GoAway: true}, redirect(307),
			{Name: "REFUSED_STREAM", Stream: "REFUSED_STREAM"}, {Name: "PROTOCOL_ERROR", Stream: "PROTOCOL_ERROR"}},
	}
	for _, protocol := range []channeltest.Protocol{channeltest.HTTP1, channeltest.HTTP2} {
		for _, f := range faults[protocol] {
			what := fmt.Sprintf("%s, %s", protocol, f.Name)
			peer := s.peer(protocol)
			w := s.worker("w", s.through(push, peer.URL(), channel.NewDoor(channel.DoorOptions{TLS: peer.TLS()})))
			first := s.tell("first-"+slug(what), push)
			s.rounds(w, 1)
			peer.Next(f)
			second := s.tell("second-"+slug(what), push)
			s.rounds(w, 2)
			t.Fault(onKept(f.Name, peer))
			t.Equal(what+": journal", []tidings.Outcome{tidings.IOError, tidings.Accepted}, s.journal(second))
			t.Equal(what+": requests of which at least the beginning arrived", s.wire(what, peer, first, second), peer.Begun())
		}
		s.storm(protocol, faults[protocol])
	}
	s.query()
}

// query lets a kept connection break under a question, which Go would ask again by itself.
func (s *scene) query() {
	s.Helper()
	peer := s.peer(channeltest.HTTP1)
	ch := channeltest.SMS(peer.URL(), channeltest.ChannelOptions{})
	s.Cleanup(ch.Close)
	w := s.worker("w", worker.Channel{Name: sms, Channel: ch})
	peer.Next(channeltest.Fault{Status: http.StatusInternalServerError}, channeltest.Fault{Reset: true})
	task := s.tell("asked", sms)
	s.rounds(w, 4)
	s.Fault(onKept("reset of a query", peer))
	s.Equal("query: journal", []tidings.Outcome{tidings.HTTP5xx, tidings.QueryFailed, tidings.QueryNotFound, tidings.Accepted}, s.journal(task))
	s.Equal("query: requests of which at least the beginning arrived", s.wire("query", peer, task), peer.Begun())
}

// storm calls for many tasks at once while every other request meets a fault.
func (s *scene) storm(protocol channeltest.Protocol, faults []channeltest.Fault) {
	s.Helper()
	const tasks = 60
	random, peer := s.Rand(), s.peer(protocol)
	for range tasks {
		peer.Next(channeltest.Fault{}, faults[random.IntN(len(faults))])
	}
	w := s.worker("w", s.through(push, peer.URL(), channel.NewDoor(channel.DoorOptions{TLS: peer.TLS()})))
	ids := make([]tidings.UUID, tasks)
	for i := range ids {
		ids[i] = s.tell(fmt.Sprintf("storm-%d-%s", i, slug(string(protocol))), push, attempts(tidings.MaxAttempts))
	}
	s.Until("all are sent", soon, func() bool {
		s.once(w)
		return one[int](s, `SELECT count(*) FROM tidings.task WHERE state <> 'SENT'`) == 0
	})
	s.Fault(fault.New("storm", string(protocol), fmt.Sprintf("%d connections for %d requests", peer.Conns(), peer.Begun())))
	// Over HTTP/2 a request can be lost on its way, when another one on the same connection meets its fault.
	what := "storm over " + string(protocol)
	s.True(what+": no more requests than attempts that began", peer.Begun() <= s.wire(what, peer, ids...))
}

// wire compares what arrived at a peer with the journal of the tasks that were sent to it, and returns how many of their
// attempts began.
func (s *scene) wire(what string, peer *channeltest.HTTPPeer, tasks ...tidings.UUID) (began int) {
	s.Helper()
	arrived := map[string]int{}
	for _, r := range peer.Requests() {
		arrived[reference(r)]++
	}
	more := 0
	for _, task := range tasks {
		n := 0
		for _, o := range s.journal(task) {
			if o != tidings.NotSent {
				n++
			}
		}
		if arrived[task.Key()] > n {
			more++
		}
		began += n
		delete(arrived, task.Key())
	}
	s.Examined("attempts that began", began)
	s.Equal(what+": tasks with more requests than attempts that began", 0, more)
	s.Equal(what+": requests for nobody", 0, len(arrived))
	return began
}

// reference is the key of the task that a request is about: of a send it stands in the body, of a query in the path.
func reference(r channeltest.HTTPRequest) string {
	var body struct{ Ref string }
	if json.Unmarshal(r.Body, &body) == nil {
		return body.Ref
	}
	u, err := url.Parse(r.Path)
	if err != nil {
		return ""
	}
	return u.Query().Get("ref")
}

// onKept is the receipt of a fault that was to meet the second request on a connection.
func onKept(kind string, peer *channeltest.HTTPPeer) fault.Receipt {
	proof := ""
	if r := peer.Requests(); len(r) >= 2 && r[0].Conn == r[1].Conn {
		proof = fmt.Sprintf("the second request on connection %d met it; %d connections in all", r[1].Conn, peer.Conns())
	}
	return fault.New(kind, "a connection that had served a request", proof)
}

// peer starts an HTTP server that answers like the push double until it is told to fail.
func (s *scene) peer(protocol channeltest.Protocol) *channeltest.HTTPPeer {
	s.Helper()
	p, err := channeltest.StartHTTPPeer(protocol, `{"id":"1"}`)
	s.Must("start an HTTP peer", err)
	s.Cleanup(p.Close)
	return p
}

// through is the push channel at url by way of a door, with time enough for its calls.
func (s *scene) through(name, url string, door *channel.Door) worker.Channel {
	ch := channeltest.Push(url, channeltest.ChannelOptions{Door: door})
	s.Cleanup(ch.Close)
	return worker.Channel{Name: name, Channel: ch, Timeout: 5 * time.Second}
}

// slug makes a text fit for an id.
func slug(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, text)
}
