// Compares every row with the model.

package lab_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// The rows of the database in the words of the reference model.

// change joins or leaves, in both.
func (m *chatModel) change(product func(ctx context.Context, conv, user, actor string) (store.Membership, error), model func(*refLog, string, string) store.Membership) {
	user, conv, actor := m.user(), m.conv(), []string{"", "shop"}[m.r.IntN(2)]
	l := m.logs[conv]
	got, err := product(m.ctx, conv, user, actor)
	if l == nil {
		m.same("a change of members of an absent conversation", refusal{code: tidings.NotFound}, m.refused(err))
		return
	}
	m.Must("change the members", err)
	before := l.head()
	m.same("change of "+user+" in "+conv, model(l, user, actor), got)
	m.learn(l, before+1)
}

// each reads rows one by one.
func (m *chatModel) each(sql, conv string, targets []any, read func()) {
	m.Helper()
	rows, err := m.pool.Query(m.ctx, sql, conv)
	m.Must("read rows", err)
	_, err = pgx.ForEachRow(rows, targets, func() error {
		read()
		return nil
	})
	m.Must("read rows", err)
}

func (m *chatModel) rows(l *refLog) []tidings.Event {
	m.Helper()
	all := []tidings.Event{}
	var e tidings.Event
	var data *string
	var at time.Time
	m.each(`SELECT seq, kind, coalesce(mid::text, ''), sender_user, coalesce(sender_device, ''), coalesce(cmid, ''), body, data, recalled_by IS NOT NULL,
		coalesce(target_seq, 0), coalesce(actor_user, ''), created_at FROM tidings.event WHERE conv_id = $1 ORDER BY seq`, l.conv,
		[]any{&e.Seq, (*string)(&e.Kind), &e.Mid, &e.Sender, &e.SDev, &e.Cmid, &e.Body, &data, &e.Recalled, &e.Target, &e.Actor, &at}, func() {
			row := e
			row.Conv, row.At = l.conv, at.UnixMilli()
			if e.Body != nil {
				body := *e.Body
				row.Body = &body
			}
			if data != nil {
				row.Data = []byte(*data)
			}
			all = append(all, row)
		})
	return all
}

func (m *chatModel) tombstones(conv string) (keys []refKey) {
	m.Helper()
	var k refKey
	m.each(`SELECT sender_user, cmid FROM tidings.tombstone WHERE conv_id = $1 ORDER BY seq`, conv, []any{&k.user, &k.cmid}, func() { keys = append(keys, k) })
	return keys
}

func (m *chatModel) spans(conv string) map[string][]refSpan {
	m.Helper()
	all := map[string][]refSpan{}
	var user string
	var s refSpan
	m.each(`SELECT user_id, join_seq, coalesce(leave_seq, 0) FROM tidings.member WHERE conv_id = $1 ORDER BY join_seq`, conv, []any{&user, &s.from, &s.to},
		func() { all[user] = append(all[user], s) })
	return all
}

func (m *chatModel) cursors(conv string) (read map[string]int64, delivered map[refDevice]refDelivered) {
	m.Helper()
	read, delivered = map[string]int64{}, map[refDevice]refDelivered{}
	var user string
	var seq int64
	m.each(`SELECT user_id, seq FROM tidings.read WHERE conv_id = $1`, conv, []any{&user, &seq}, func() { read[user] = seq })
	var d refDevice
	var at refDelivered
	m.each(`SELECT user_id, device_id, install_no, seq FROM tidings.delivered WHERE conv_id = $1`, conv, []any{&d.user, &d.device, &at.install, &at.seq},
		func() { delivered[d] = at })
	return read, delivered
}
