// The part of the conformance suite that needs an SMTP peer.

package channeltest

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
)

// smtpScene is a fault, what a send may say about it, and whether the peer took the message nevertheless.
type smtpScene struct {
	fault    SMTPFault
	code     tidings.Outcome
	accepted bool
	also     tidings.Outcome // "": none
}

func smtpScenes() []smtpScene {
	var list []smtpScene
	for _, phase := range []string{PhaseConnect, PhaseEHLO, PhaseStartTLS, PhaseMail, PhaseRcpt, PhaseData, PhaseMessage, PhaseDot} {
		cut, hang, alsoCut, alsoHang := tidings.NotSent, tidings.NotSent, tidings.Outcome(""), tidings.Outcome("")
		switch phase {
		case PhaseMessage: // a short message may have left this host with its dot before the peer reads on
			alsoCut, alsoHang = tidings.IOError, tidings.Timeout
		case PhaseDot:
			cut, hang = tidings.IOError, tidings.Timeout
		}
		list = append(list,
			smtpScene{SMTPFault{Phase: phase, Close: true}, cut, phase == PhaseDot, alsoCut},
			smtpScene{SMTPFault{Phase: phase, Reset: true}, cut, phase == PhaseDot, alsoCut},
			smtpScene{SMTPFault{Phase: phase, Hang: true}, hang, phase == PhaseDot, alsoHang},
			smtpScene{SMTPFault{Phase: phase, Reply: "garbage", Close: true}, cut, phase == PhaseDot, alsoCut})
		if phase == PhaseMessage {
			continue // a server does not reply in the middle of a message
		}
		temporary, final := tidings.NotSent, tidings.NotSent // before MAIL a reply is about the session
		if phase == PhaseMail || phase == PhaseRcpt || phase == PhaseData || phase == PhaseDot {
			temporary, final = tidings.HTTP5xx, tidings.Rejected
		}
		list = append(list,
			smtpScene{SMTPFault{Phase: phase, Reply: "451 4.3.0 later"}, temporary, false, ""},
			smtpScene{SMTPFault{Phase: phase, Reply: "421 4.3.2 closing", Close: true}, temporary, false, ""},
			smtpScene{SMTPFault{Phase: phase, Reply: "554 5.7.1 no"}, final, false, ""},
			smtpScene{SMTPFault{Phase: phase, Reply: "550-5.1.1 no such user\r\n550 5.1.1 here"}, final, false, ""})
	}
	return append(list,
		smtpScene{SMTPFault{Phase: PhaseDot, Reply: "250 ok", Close: true}, tidings.Accepted, true, ""},
		smtpScene{SMTPFault{Phase: PhaseDot, Reply: "250 ok", Reset: true}, tidings.Accepted, true, ""},
		smtpScene{SMTPFault{Phase: PhaseDot, Reply: "25", Close: true}, tidings.IOError, true, ""},
		smtpScene{SMTPFault{Phase: PhaseDot, Reply: "354 more"}, tidings.IOError, true, ""})
}

func conformSMTP(t *testing.T, f Fixture) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("STARTTLS %v", secure), func(t *testing.T) {
			peer := startSMTPPeer(t, secure)
			b := newBench(t, f, f.SMTP(peer.Addr(), peer.TLS()), peer.Addr())
			b.declared()
			b.unstarted(func() int { return len(peer.Phases()) })
			b.pure(newBench(t, f, f.SMTP(peer.Addr(), peer.TLS()), peer.Addr()))
			b.sameText(peer)
			for _, sc := range smtpScenes() {
				if secure || sc.fault.Phase != PhaseStartTLS {
					t.Run(fmt.Sprintf("%s %+v", sc.fault.Phase, sc.fault), func(t *testing.T) { playSMTP(t, f, secure, sc) })
				}
			}
		})
	}
	t.Run("connection refused", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
		addr := listener.Addr().String()
		b := newBench(t, f, f.SMTP(addr, nil), addr)
		b.expect(b.send(b.deadline(plenty), b.message), tidings.NotSent)
	})
	t.Run("no such name", func(t *testing.T) {
		b := newBench(t, f, f.SMTP("nowhere.invalid:25", nil), "nowhere.invalid:25")
		b.expect(b.send(b.deadline(plenty), b.message), tidings.NotSent)
	})
	t.Run("certificate not trusted", func(t *testing.T) {
		peer := startSMTPPeer(t, true)
		b := newBench(t, f, f.SMTP(peer.Addr(), &tls.Config{}), peer.Addr())
		b.expect(b.send(b.deadline(plenty), b.message), tidings.NotSent)
		if len(peer.Mails()) != 0 {
			t.Error("the peer got a message without a trusted connection")
		}
	})
}

func startSMTPPeer(t *testing.T, secure bool) *SMTPPeer {
	t.Helper()
	peer, err := StartSMTPPeer(secure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Close)
	return peer
}

// playSMTP plays a scene on a new connection and, from MAIL on, on one that has already carried a message. What the peer
// took is compared with what the outcome says.
func playSMTP(t *testing.T, f Fixture, secure bool, sc smtpScene) {
	early := sc.fault.Phase == PhaseConnect || sc.fault.Phase == PhaseEHLO || sc.fault.Phase == PhaseStartTLS
	for _, kept := range []bool{false, true} {
		if kept && early {
			continue
		}
		peer := startSMTPPeer(t, secure)
		b := newBench(t, f, f.SMTP(peer.Addr(), peer.TLS()), peer.Addr())
		if kept {
			b.expect(b.send(b.deadline(plenty), b.message), tidings.Accepted)
		}
		before := len(peer.Mails())
		ctx := b.deadline(plenty)
		if sc.fault.Hang {
			seen := len(peer.Phases())
			ctx = b.expires(func() bool { return slices.Contains(peer.Phases()[seen:], sc.fault.Phase) })
		}
		peer.Next(sc.fault)
		out := b.send(ctx, b.message)
		b.expect(out, sc.code, sc.also)
		want := 0
		if sc.accepted {
			want = 1
		}
		if n := len(peer.Mails()) - before; n != want {
			t.Errorf("kept connection: %v: the peer took %d messages, not %d", kept, n, want)
		}
		gone := sc.fault.Phase == PhaseRcpt && sc.code == tidings.Rejected && sc.fault.Reply[:4] == "550-"
		if out.AddressGone != gone {
			t.Errorf("AddressGone is %v", out.AddressGone)
		}
		if out.Code == tidings.HTTP5xx || out.Code == tidings.Rejected {
			if safe := b.ch.Contract().Safe; safe == nil || !safe(out.Status) {
				t.Errorf("the contract does not say that %d proves non-acceptance", out.Status)
			}
		}
		b.expect(b.send(b.deadline(plenty), b.message), tidings.Accepted) // and it recovers
	}
}

// sameText checks that an unchanged message is an unchanged text, Message-ID and Date included.
func (b *bench) sameText(peer *SMTPPeer) {
	b.t.Helper()
	start := len(peer.Mails())
	for range 2 {
		b.expect(b.send(b.deadline(plenty), b.message), tidings.Accepted)
	}
	got := peer.Mails()[start:]
	if len(got) != 2 {
		b.t.Fatalf("the peer took %d messages for two attempts", len(got))
	}
	if got[0].Text != got[1].Text || got[0].To != got[1].To || got[0].From != got[1].From {
		b.t.Error("the same message was sent with other bytes")
	}
	if got[0].Text == "" {
		b.t.Error("the peer got no text: what was compared is nothing")
	}
	late := channel.WithStartBy(b.deadline(plenty), time.Now().Add(-time.Second))
	b.expect(b.send(late, b.message), tidings.NotSent)
	if n := len(peer.Mails()) - start; n != 2 {
		b.t.Errorf("too late, but the peer took a message")
	}
}
