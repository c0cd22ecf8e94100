// The check 33-smtp-phases.

package lab_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/smtp"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-smtp-phases",
		Expect: "cut before the final dot: [NOT_SENT, ACCEPTED], SENT; cut or silent after it: [IO_ERROR] or [TIMEOUT], UNKNOWN, waits for a " +
			"person, and the server has the message; 4yz: [HTTP_5XX, ACCEPTED], SENT; 5yz: [REJECTED], FAILED, and it has none",
		Run: smtpPhases,
	})
}

// smtpPhases breaks one session at each phase. A server that says nothing is waited for until the call's time is over.
func smtpPhases(t *lab.T) {
	s := newScene(t)
	var (
		sentLater = []tidings.Outcome{tidings.NotSent, tidings.Accepted}
		refused   = []tidings.Outcome{tidings.Rejected}
		deferred  = []tidings.Outcome{tidings.HTTP5xx, tidings.Accepted}
		unknown   = []tidings.Outcome{tidings.IOError}
	)
	type phase struct {
		fault   channeltest.SMTPFault
		journal []tidings.Outcome
		state   tidings.State
		mails   int // what the server took responsibility for
	}
	var phases []phase
	for _, name := range []string{channeltest.PhaseConnect, channeltest.PhaseEHLO, channeltest.PhaseStartTLS, channeltest.PhaseMail,
		channeltest.PhaseRcpt, channeltest.PhaseData} {
		phases = append(phases,
			phase{channeltest.SMTPFault{Phase: name, Close: true}, sentLater, tidings.Sent, 1},
			phase{channeltest.SMTPFault{Phase: name, Reset: true}, sentLater, tidings.Sent, 1})
	}
	for _, name := range []string{channeltest.PhaseMail, channeltest.PhaseRcpt, channeltest.PhaseData, channeltest.PhaseDot} {
		phases = append(phases,
			phase{channeltest.SMTPFault{Phase: name, Reply: "451 4.3.0 later"}, deferred, tidings.Sent, 1},
			phase{channeltest.SMTPFault{Phase: name, Reply: "554 5.7.1 no"}, refused, tidings.Failed, 0})
	}
	phases = append(phases,
		phase{channeltest.SMTPFault{Phase: channeltest.PhaseDot, Close: true}, unknown, tidings.Unknown, 1},
		phase{channeltest.SMTPFault{Phase: channeltest.PhaseDot, Reset: true}, unknown, tidings.Unknown, 1},
		phase{channeltest.SMTPFault{Phase: channeltest.PhaseDot, Hang: true}, []tidings.Outcome{tidings.Timeout}, tidings.Unknown, 1})

	for i, p := range phases {
		what := fmt.Sprintf("%d, %s%s", i+1, p.fault.Phase, p.fault.Reply)
		task, peer := s.mail(what, p.fault)
		t.Equal(what+": journal", p.journal, s.journal(task))
		s.state(what, p.state, task)
		if p.state == tidings.Unknown {
			s.parked(what, task)
		}
		t.Equal(what+": messages that the server took", p.mails, len(peer.Mails()))
	}

	// While the message is on its way it depends on the network whether its end has left too: either nobody can have
	// taken it, and it is sent again, or somebody may have.
	task, peer := s.mail("in the message", channeltest.SMTPFault{Phase: channeltest.PhaseMessage, Reset: true})
	if journal := s.journal(task); slices.Equal(journal, sentLater) {
		s.state("cut in the message", tidings.Sent, task)
		t.Equal("cut in the message: messages that the server took", 1, len(peer.Mails()))
	} else {
		t.Equal("cut in the message: journal", unknown, journal)
		s.parked("cut in the message", task)
		t.Equal("cut in the message: messages that the server took", 0, len(peer.Mails()))
	}
}

// mail sends one message through a server that fails once, until nothing is left to do, and keeps the receipt.
func (s *scene) mail(what string, f channeltest.SMTPFault) (tidings.UUID, *channeltest.SMTPPeer) {
	s.Helper()
	peer, err := channeltest.StartSMTPPeer(true)
	s.Must("start a mail server", err)
	s.Cleanup(peer.Close)
	ch, err := smtp.New(smtp.Config{Addr: peer.Addr(), TLS: peer.TLS(), From: "shop@example.org"})
	s.Must("make a mail channel", err)
	s.Cleanup(ch.Close)
	timeout := 5 * time.Second
	if f.Hang {
		timeout = 400 * time.Millisecond
	}
	w := s.worker("postman", worker.Channel{Name: "mail", Channel: ch, Timeout: timeout})

	peer.Next(f)
	user := slug("reader-" + what)
	s.exec(`INSERT INTO tidings.channel_pref (bucket, user_id, channel, address) VALUES (tidings.bucket_of($1), $1, 'mail', 'reader@example.org')`, user)
	task := s.task(s.notify(user, "shipped"), "mail")
	s.Until(what+": nothing is left to do", soon, func() bool {
		s.once(w)
		r := s.where(task)
		return r.State.Final() || r.Review
	})
	proof := ""
	if slices.Contains(peer.Phases(), f.Phase) {
		proof = fmt.Sprintf("the phase was reached; the phases of all sessions: %v", peer.Phases())
	}
	s.Fault(fault.New("SMTP fault", fmt.Sprintf("%s: %+v", f.Phase, f), proof))
	return task, peer
}
