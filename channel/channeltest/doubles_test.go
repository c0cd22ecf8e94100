// Tests of what the doubles do with messages.

package channeltest_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o channeltest.Options) *channeltest.Server {
	t.Helper()
	s, err := channeltest.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the doubles: %v", err)
		}
	})
	return s
}

func message(ref string) channel.Message {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return channel.Message{Key: ref, User: "u1", EventKey: "e1", Address: "device-1", Title: "Shipped", Body: "Order 1001 has left.",
		CreatedAt: at, ExpiresAt: at.Add(time.Hour), Attempt: 1}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func code(t *testing.T, out channel.Outcome, want tidings.Outcome) {
	t.Helper()
	if out.Code != want {
		t.Errorf("outcome %q (%s), want %q", out.Code, out.Detail, want)
	}
}

func counts(t *testing.T, s *channeltest.Server, mode, ref string, want channeltest.Counts) {
	t.Helper()
	got, err := s.Counts(mode, ref)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts of %s %s (-want +got):\n%s", mode, ref, diff)
	}
}

func TestPushDeduplicatesAfterTimeout(t *testing.T) {
	s := start(t, channeltest.Options{})
	push := channeltest.Push(s.URL(), channeltest.ChannelOptions{})
	defer push.Close()
	if err := s.Next(channeltest.ModePush, channeltest.Step{Do: channeltest.DoAccept, DelayMS: 60_000}); err != nil {
		t.Fatal(err)
	}
	code(t, push.Send(within(t, 500*time.Millisecond), message("r1")), tidings.Timeout)
	out := push.Send(within(t, 5*time.Second), message("r1"))
	code(t, out, tidings.AcceptedReplay)
	if out.ProviderMsgID == "" {
		t.Error("the replay has no provider id")
	}
	counts(t, s, channeltest.ModePush, "r1", channeltest.Counts{Requests: 2, Sends: 1, Replays: 1})
}

func TestSMSAnswersQueries(t *testing.T) {
	s := start(t, channeltest.Options{})
	sms := channeltest.SMS(s.URL(), channeltest.ChannelOptions{})
	defer sms.Close()
	ref := channel.Ref{Key: "r1", Address: "device-1"}
	code(t, sms.Query(within(t, 5*time.Second), ref), tidings.QueryNotFound)
	if err := s.Next(channeltest.ModeSMS, channeltest.Step{Do: channeltest.DoHang}); err != nil {
		t.Fatal(err)
	}
	code(t, sms.Send(within(t, 500*time.Millisecond), message("r1")), tidings.Timeout)
	code(t, sms.Query(within(t, 5*time.Second), ref), tidings.QueryFound)
	code(t, sms.Send(within(t, 5*time.Second), message("r1")), tidings.Accepted)
	counts(t, s, channeltest.ModeSMS, "r1", channeltest.Counts{Requests: 4, Sends: 2, Queries: 2})
	if err := s.NextQuery(channeltest.Step{Do: channeltest.DoRefuse, Status: 503}); err != nil {
		t.Fatal(err)
	}
	code(t, sms.Query(within(t, 5*time.Second), ref), tidings.QueryFailed)
}

func TestScriptedAnswers(t *testing.T) {
	s := start(t, channeltest.Options{})
	plain := channeltest.Plain(s.URL(), channeltest.ChannelOptions{})
	defer plain.Close()
	for _, c := range []struct {
		step  channeltest.Step
		want  tidings.Outcome
		sends int64
	}{
		{channeltest.Step{Do: channeltest.DoRefuse, Status: 503}, tidings.HTTP5xx, 0},
		{channeltest.Step{Do: channeltest.DoRefuse, Status: 400}, tidings.Rejected, 0},
		{channeltest.Step{Do: channeltest.DoRefuse, Status: 410}, tidings.Rejected, 0},
		{channeltest.Step{Do: channeltest.DoRefuse, Status: 429, RetryAfterS: 7}, tidings.Throttled, 0},
		{channeltest.Step{Do: channeltest.DoStatus, Status: 502}, tidings.HTTP5xx, 1},
		{channeltest.Step{Do: channeltest.DoReset}, tidings.IOError, 1},
		{channeltest.Step{Do: channeltest.DoCut}, tidings.Accepted, 1},
		{channeltest.Step{Do: channeltest.DoDrop}, tidings.IOError, 0},
		{channeltest.Step{Do: channeltest.DoLose}, tidings.Timeout, 0},
		{channeltest.Step{Do: channeltest.DoAccept}, tidings.Accepted, 1},
	} {
		t.Run(c.step.Do+"-"+string(c.want), func(t *testing.T) {
			if err := s.Reset(); err != nil {
				t.Fatal(err)
			}
			if err := s.Next(channeltest.ModePlain, c.step); err != nil {
				t.Fatal(err)
			}
			out := plain.Send(within(t, time.Second), message("r1"))
			code(t, out, c.want)
			if out.RetryAfter != time.Duration(c.step.RetryAfterS)*time.Second {
				t.Errorf("RetryAfter is %v", out.RetryAfter)
			}
			if out.AddressGone != (c.step.Status == 410) {
				t.Errorf("AddressGone is %v", out.AddressGone)
			}
			counts(t, s, channeltest.ModePlain, "r1", channeltest.Counts{Requests: 1, Sends: c.sends})
		})
	}
}
