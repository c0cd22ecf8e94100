// Tests of the erasure of a user.

package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/store"
)

// by is a message of another sender.
func by(user, conv, cmid string) tidings.Message {
	m := said(conv, cmid)
	m.Sender, m.Device = user, ""
	return m
}

func TestEraseUser(t *testing.T) {
	b := newTalk(t, 3)
	ctx := t.Context()
	note := func(n *tidings.Notification) { n.Data, n.Category = []byte(`{"k":"v"}`), "news" }
	b.say(said("c-1", "m-1"), by("u-ben", "c-1", "b-1"), said("c-1", "m-2"), said("c-2", "m-1"), by("u-ben", "c-3", "b-1")) // c-1: 3, 4, 5
	b.recalls("before", takes(5, "r-1"), "", 6, false)
	b.exec(`UPDATE tidings.conversation SET recall_window_ms = 0`)
	_, err := b.Leave(ctx, "c-2", "u-ana", "")
	b.must(err)

	settled := b.task(push, "u-ana", "settled", note)
	b.finish(b.claimOne(push), tidings.Accepted, "p")
	parked := b.parked("u-ana", "parked", note)
	forced := b.parked("u-ana", "forced", note)
	b.must(b.Resolve(ctx, b.resolution(forced, store.VerbResend)))
	held := b.task(push, "u-ana", "held", note)
	claim := b.claimOne(push)
	pending := b.task(push, "u-ana", "pending", note)
	later := time.Now().Add(time.Hour)
	scheduled := b.task(push, "u-ana", "scheduled", note, func(n *tidings.Notification) { n.NotBefore = &later })
	others := b.task(push, "u-ben", "others", note)
	b.exec(`DELETE FROM tidings.posted`)
	b.exec(`DELETE FROM tidings.taken_back`)
	b.exec(`DELETE FROM tidings.gone`)
	others0 := one[string](b, `SELECT string_agg(n::text, ',') FROM tidings.notification n WHERE user_id = 'u-ben'`)

	did, err := b.EraseUser(ctx, "u-ana", "op-1")
	b.must(err)
	if did.Messages != 2 || did.Conversations != 2 || did.Preferences != 2 || did.Notifications != 6 || did.Tasks != 4 || did.User != "u-ana" {
		t.Errorf("report %+v", did)
	}
	if want := []string{"1 join u-ana", "2 join u-ben", "3 msg u-ana m-1", "4 msg u-ben b-1", "5 msg u-ana m-2", "6 recall u-ana r-1", "7 recall u-ana"}; !slices.Equal(b.log("c-1"), want) {
		t.Errorf("log %q", b.log("c-1"))
	}
	if got := one[string](b, `SELECT concat_ws(' ', target_seq, actor_user, cmid, sender_device, mid) FROM tidings.event WHERE conv_id = 'c-1' AND seq = 7`); got != "3 op-1" {
		t.Errorf("the recall is %s", got)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.event WHERE sender_user = 'u-ana' AND kind = 'msg' AND (recalled_by IS NULL OR num_nonnulls(body, data, request_hash) > 0)`); n != 0 {
		t.Errorf("%d messages have content", n)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.event WHERE sender_user = 'u-ben' AND body IS NOT NULL`); n != 2 {
		t.Errorf("of others %d messages are left", n)
	}
	for what, want := range map[string]string{
		`SELECT string_agg(concat_ws(' ', conv_id, seq), ',' ORDER BY conv_id) FROM tidings.posted`:                                                                                   "c-1 7,c-2 5",
		`SELECT string_agg(concat_ws(' ', conv_id, why, seq), ',' ORDER BY conv_id) FROM tidings.gone`:                                                                                "c-1 recall 3,c-2 recall 3",
		`SELECT string_agg(concat_ws(' ', conv_id, what, mid IS NULL, user_id, cmid), ',' ORDER BY conv_id COLLATE "C", at) FROM tidings.taken_back`:                                  " erase t u-ana,c-1 recall f u-ana m-1,c-2 recall f u-ana m-1",
		`SELECT count(*)::text FROM tidings.taken_back t JOIN tidings.lineage l ON l.generation = t.epoch`:                                                                            "3",
		`SELECT count(*)::text FROM tidings.channel_pref WHERE user_id = 'u-ana'`:                                                                                                     "0",
		`SELECT count(*)::text FROM tidings.task WHERE user_id = 'u-ana' AND address IS NOT NULL`:                                                                                     "0",
		`SELECT count(*)::text FROM tidings.notification WHERE user_id = 'u-ana' AND num_nonnulls(title, body, data) = 0 AND num_nonnulls(erased_at, cancelled_at, payload_hash) = 3`: "6",
	} {
		if got := one[string](b, what); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	if got := one[string](b, `SELECT string_agg(n::text, ',') FROM tidings.notification n WHERE user_id = 'u-ben'`); got != others0 {
		t.Error("a notification of somebody else was changed")
	}

	// Nothing is sent any more. What was not sent is suppressed; what may have been waits for a person, with its journal.
	b.prefer("u-ana", push.Channel, plain.Channel) // they come back
	b.finish(claim, tidings.Timeout, "")
	b.exec(`UPDATE tidings.task SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL`)
	for _, c := range append(b.claim(push, 10), b.claim(plain, 10)...) {
		if c.User == "u-ana" && (c.State == tidings.Sending || c.Title != "" || c.Body != "" || c.Data != nil || c.Stop != tidings.Cancelled) {
			t.Errorf("%s was claimed as %+v", c.EventKey, c)
		}
	}
	for id, want := range map[tidings.UUID][]tidings.Outcome{
		settled:   {tidings.Accepted},
		parked.ID: {tidings.Timeout},
		forced.ID: {tidings.Timeout, tidings.ManualResend, tidings.CancelledInDoubt},
		held:      {tidings.Timeout, tidings.CancelledInDoubt},
		pending:   {tidings.Cancelled},
		scheduled: {tidings.Cancelled},
	} {
		d := b.detail(id)
		if got := b.outcomes(id); !slices.Equal(got, want) || d.ErasedAt == nil || d.Title+d.Body != "" || d.InDoubt != d.Review || (d.State == tidings.Suppressed) != (want[0] == tidings.Cancelled) {
			t.Errorf("%s: %v, %+v", d.EventKey, got, d)
		}
	}
	err = b.Resolve(ctx, b.resolution(b.detail(parked.ID), store.VerbResend))
	b.want(tidings.InvalidArgument, err)
	if got := err.Error(); got != "INVALID_ARGUMENT: the task must not be sent any more: its content was erased" {
		t.Errorf("a resend is refused with %q", got)
	}
	b.must(b.Resolve(ctx, b.resolution(b.detail(parked.ID), store.VerbFailed)))
	if d := b.detail(others); d.State != tidings.Sending || d.Title == "" || d.ErasedAt != nil {
		t.Errorf("the task of somebody else is %+v", d)
	}

	// The key still tells a repeat from other content.
	for body, differs := range map[string]bool{"body": false, "other": true} {
		got := one[string](b, `SELECT concat_ws(' ', a ->> 'created', a ->> 'tasks', a ->> 'payload_differs', a ->> 'expired') FROM (SELECT tidings.notify_v1(
			json_build_object('user', 'u-ana', 'event_key', 'settled', 'title', 'title', 'body', $1::text, 'data', '{"k":"v"}'::json, 'category', 'news', 'ttl_s', 3600)) -> 0 AS a) x`, body)
		if want := fmt.Sprintf("false 1 %t false", differs); got != want {
			t.Errorf("submitted again with %q: %s, want %s", body, got, want)
		}
	}
	n, err := b.FindNotification(ctx, "u-ana", "settled")
	b.must(err)
	if n.ErasedAt == nil || n.CancelledAt == nil || n.Title+n.Body != "" || n.Data != nil || len(n.Tasks) != 1 {
		t.Errorf("the notification is %+v", n)
	}
	// Nothing of this is left to be done; new things are not touched.
	b.say(said("c-1", "m-9"))
	again, err := b.EraseUser(ctx, "u-cyd", "op-1")
	b.must(err)
	if again.Messages+again.Preferences+again.Notifications+again.Tasks != 0 {
		t.Errorf("of nobody %+v", again)
	}
	b.whole()
	b.kept()
	_, _, err = b.Purge(ctx, time.Nanosecond, 100)
	b.must(err)
	b.kept()
	for _, bad := range [][2]string{{"", "op"}, {"u v", "op"}, {"u", ""}, {"u", "o/p"}} {
		_, err := b.EraseUser(ctx, bad[0], bad[1])
		b.want(tidings.InvalidArgument, err)
	}
}

// An erasure that was interrupted is run again and does the rest, in steps.
func TestEraseInterrupted(t *testing.T) {
	b := newTalk(t, 3)
	ctx := t.Context()
	const each = 450
	for c := range 3 {
		var batch []tidings.Message
		for i := range each {
			batch = append(batch, said(fmt.Sprintf("c-%d", c+1), fmt.Sprintf("m-%d", i)))
		}
		b.say(batch...)
	}
	b.prefer("u-ana", "push")
	b.exec(`SELECT tidings.notify_v1((SELECT json_agg(json_build_object('user', 'u-ana', 'event_key', 'e' || g, 'body', 'x', 'ttl_s', 3600)) FROM generate_series(1, $1) g))`, each)
	b.exec(`UPDATE tidings.task SET address = 'somewhere', address_version = 1`)

	release := b.hold("c-2")
	first, err := b.EraseUser(ctx, "u-ana", "op-1")
	b.want(tidings.Unavailable, err)
	if first.Messages != each || first.Conversations != 1 || first.Notifications != each || first.Tasks != each || one[int](b, `SELECT count(*) FROM tidings.taken_back WHERE what = 'erase'`) != 0 {
		t.Errorf("the first did %+v", first)
	}
	release()
	second, err := b.EraseUser(ctx, "u-ana", "op-1")
	b.must(err)
	if second.Messages != 2*each || second.Conversations != 2 || second.Notifications != 0 || second.Preferences != 0 {
		t.Errorf("the second did %+v", second)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.event WHERE kind = 'recall'`); n != 3*each {
		t.Errorf("%d recalls", n)
	}
	if got := one[string](b, `SELECT string_agg(concat(what, n), ' ' ORDER BY what) FROM (SELECT what, count(*) AS n FROM tidings.taken_back GROUP BY what) t`); got != fmt.Sprintf("erase1 recall%d", 3*each) {
		t.Errorf("the journal has %s", got)
	}
	b.whole()
	b.kept()
}

// While somebody is erased they may write on: what is committed before the erasure begins goes, all of it, and no log gets a hole.
func TestEraseWhileSending(t *testing.T) {
	b := newTalk(t, 2)
	ctx := t.Context()
	b.prefer("u-ana", "push")
	b.submit("u-ana", "before")
	began := make(chan struct{})
	var did store.EraseReport
	var messages, notes []tidings.UUID // that were committed before
	atOnce(5, func(i int) {
		if i == 0 {
			<-began
			messages = one[[]tidings.UUID](b, `SELECT array_agg(mid) FROM tidings.event WHERE kind = 'msg'`)
			notes = one[[]tidings.UUID](b, `SELECT array_agg(id) FROM tidings.notification`)
			var err error
			if did, err = b.EraseUser(ctx, "u-ana", "op-1"); err != nil {
				t.Error(err)
			}
			return
		}
		for r := range 30 {
			if i == 1 && r == 10 {
				close(began)
			}
			if i == 4 {
				_, err := b.Claim(ctx, push, 5, claimID(), nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := b.pool.Exec(ctx, `SELECT tidings.notify_v1(json_build_object('user', 'u-ana', 'event_key', $1::text, 'body', 'x', 'ttl_s', 3600))`, fmt.Sprint("e-", r)); err != nil {
					t.Error(err)
				}
				continue
			}
			if _, err := b.Send(ctx, []tidings.Message{said(fmt.Sprintf("c-%d", 1+i%2), fmt.Sprintf("m-%d-%d", i, r))}, time.Minute); err != nil {
				t.Error(err)
			}
		}
	})
	if n := one[int](b, `SELECT count(*) FROM tidings.event WHERE mid = ANY ($1) AND recalled_by IS NULL`, messages); n != 0 || did.Messages < len(messages) {
		t.Errorf("%d messages from before are left; %+v", n, did)
	}
	if n := one[int](b, `SELECT count(*) FROM tidings.notification WHERE id = ANY ($1) AND erased_at IS NULL`, notes); n != 0 || did.Notifications < len(notes) {
		t.Errorf("%d notifications from before are left; %+v", n, did)
	}
	b.whole()
	b.kept()
	dir := t.TempDir()
	b.takings(dir)
	if all := b.journal(dir); len(all) != did.Messages+1 || all[len(all)-1].What != outside.TookErase || !all[len(all)-1].Cutoff.Equal(did.CutoffAt) {
		t.Errorf("the journal ends with %+v of %d", all[len(all)-1], len(all))
	}
}
