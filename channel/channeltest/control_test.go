// Tests of how the doubles are told what to do.

package channeltest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/channel/webhook"
)

func TestKeyRetention(t *testing.T) {
	s := start(t, channeltest.Options{KeyRetention: time.Millisecond})
	push := channeltest.Push(s.URL(), channeltest.ChannelOptions{})
	defer push.Close()
	code(t, push.Send(within(t, 5*time.Second), message("r1")), tidings.Accepted)
	time.Sleep(5 * time.Millisecond) // the retention is over: a fact of the clock, not a race
	code(t, push.Send(within(t, 5*time.Second), message("r1")), tidings.Accepted)
	counts(t, s, channeltest.ModePush, "r1", channeltest.Counts{Requests: 2, Sends: 2})
	if err := s.Settings(0, 0); err != nil {
		t.Fatal(err)
	}
	code(t, push.Send(within(t, 5*time.Second), message("r1")), tidings.AcceptedReplay)
}

func TestLateVisibility(t *testing.T) {
	s := start(t, channeltest.Options{VisibleAfter: time.Hour})
	sms := channeltest.SMS(s.URL(), channeltest.ChannelOptions{})
	defer sms.Close()
	code(t, sms.Send(within(t, 5*time.Second), message("r1")), tidings.Accepted)
	ref := channel.Ref{Key: "r1"}
	code(t, sms.Query(within(t, 5*time.Second), ref), tidings.QueryNotFound)
	if err := s.Settings(0, 0); err != nil {
		t.Fatal(err)
	}
	code(t, sms.Query(within(t, 5*time.Second), ref), tidings.QueryFound)
	if err := s.NextQuery(channeltest.Step{Do: channeltest.DoNotFound}, channeltest.Step{Do: channeltest.DoRefuse, Status: 503, Times: 2}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []tidings.Outcome{tidings.QueryNotFound, tidings.QueryFailed, tidings.QueryFailed, tidings.QueryFound} {
		code(t, sms.Query(within(t, 5*time.Second), ref), want)
	}
}

func TestScriptsSelect(t *testing.T) {
	s := start(t, channeltest.Options{})
	plain := channeltest.Plain(s.URL(), channeltest.ChannelOptions{})
	defer plain.Close()
	refuse := []channeltest.Step{{Do: channeltest.DoRefuse, Status: 503, Times: -1}}
	for _, sc := range []channeltest.Script{
		{Ref: "r1", Steps: refuse},
		{Address: "device-2", Steps: refuse},
		{Mode: channeltest.ModeSMS, Steps: refuse},
	} {
		if err := s.Script(sc); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		code(t, plain.Send(within(t, 5*time.Second), message("r1")), tidings.HTTP5xx)
	}
	code(t, plain.Send(within(t, 5*time.Second), message("r2")), tidings.Accepted)
	m := message("r3")
	m.Address = "device-2"
	code(t, plain.Send(within(t, 5*time.Second), m), tidings.HTTP5xx)
	for _, bad := range []channeltest.Script{{}, {Steps: []channeltest.Step{{}}}, {Steps: []channeltest.Step{{Do: "explode"}}},
		{Steps: []channeltest.Step{{Do: channeltest.DoRefuse}}}} {
		if err := s.Script(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	log, err := s.Log("", "r3", 0)
	if err != nil || len(log) != 1 || log[0].Address != "device-2" || log[0].Accepted || log[0].Do != channeltest.DoRefuse || log[0].N != 5 {
		t.Errorf("the log of r3: %+v, %v", log, err)
	}
	if all, err := s.Log("", "", 3); err != nil || len(all) != 2 {
		t.Errorf("the log after 3: %+v, %v", all, err)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	code(t, plain.Send(within(t, 5*time.Second), message("r1")), tidings.Accepted)
	counts(t, s, "", "", channeltest.Counts{Requests: 1, Sends: 1})
}

func TestPushCannotBeAsked(t *testing.T) {
	s := start(t, channeltest.Options{})
	for mode, want := range map[string]int{"push": 405, "plain": 405, "sms": 200} {
		resp, err := http.Get(s.URL() + "/" + mode + "/messages?ref=r1")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", mode, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestReceipt(t *testing.T) {
	const text = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, channeltest.Options{})
	sms := channeltest.SMS(s.URL(), channeltest.ChannelOptions{Secrets: []webhook.Secret{secret}})
	defer sms.Close()
	var got []channel.Receipt
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			got, err = sms.ParseReceipt(r.Header, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	}))
	defer target.Close()
	out := sms.Send(within(t, 5*time.Second), message("r1"))
	code(t, out, tidings.Accepted)
	for _, o := range []channeltest.ReceiptOrder{{Status: "delivered"}, {Status: "failed", WithoutID: true}, {Status: "delivered", OnlyID: true}} {
		o.URL, o.Secret, o.Mode, o.Ref = target.URL, text, channeltest.ModeSMS, "r1"
		answer, err := s.Receipt(o)
		if err != nil || answer.Status != http.StatusOK || len(got) != 1 {
			t.Fatalf("%+v: %+v, %v", o, answer, err)
		}
		r := got[0]
		if r.Status != o.Status || (r.ProviderMsgID == out.ProviderMsgID) == o.WithoutID || (r.Reference == "r1") == o.OnlyID || r.At.IsZero() {
			t.Errorf("%+v: %+v", o, r)
		}
	}
	answer, err := s.Receipt(channeltest.ReceiptOrder{URL: target.URL, Mode: channeltest.ModeSMS, Ref: "r1", Status: "delivered",
		Secret: "whsec_AAEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="})
	if err != nil || answer.Status != http.StatusUnauthorized {
		t.Errorf("another secret: %+v, %v", answer, err)
	}
}
