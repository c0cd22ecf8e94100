// An oracle of synced pages: what a log was at each moment, and whether a page could have been given.

package lab_test

import (
	"fmt"
	"slices"
)

// past is the whole of a log, with what was purged of it.
type past struct {
	epoch  int64
	events map[int64]logged
	purges []purged // in their order; the first one is the beginning
}

// purged is a step of a purge: what min_seq became, and where the head was then.
type purged struct{ minSeq, head int64 }

// told is a page as it was given to a user, with what was committed for certain when it was asked for.
type told struct {
	user         string
	page         frame
	minSeq, head int64
}

// auditLog has the database keep every event and every purge of a conversation.
func (c *chat) auditLog(conv string) {
	c.Helper()
	c.exec(`CREATE TABLE tidings.lab_event AS SELECT seq, kind, sender_user, coalesce(cmid, '') AS cmid, coalesce(body, '') AS body FROM tidings.event WHERE conv_id = '` + conv + `'`)
	c.exec(`CREATE TABLE tidings.lab_purge (n bigint GENERATED ALWAYS AS IDENTITY, min_seq bigint, head bigint)`)
	c.exec(`CREATE FUNCTION tidings.lab_append() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO tidings.lab_event VALUES (NEW.seq, NEW.kind, NEW.sender_user, coalesce(NEW.cmid, ''), coalesce(NEW.body, '')); RETURN NEW; END $$`)
	c.exec(`CREATE FUNCTION tidings.lab_purged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO tidings.lab_purge (min_seq, head) VALUES (NEW.min_seq, NEW.next_seq - 1); RETURN NEW; END $$`)
	c.exec(`CREATE TRIGGER lab_append AFTER INSERT ON tidings.event FOR EACH ROW WHEN (NEW.conv_id = '` + conv + `') EXECUTE FUNCTION tidings.lab_append()`)
	c.exec(`CREATE TRIGGER lab_purged AFTER UPDATE ON tidings.conversation FOR EACH ROW WHEN (NEW.conv_id = '` + conv + `' AND NEW.min_seq <> OLD.min_seq) EXECUTE FUNCTION tidings.lab_purged()`)
}

// audited is what the database has kept.
func (c *chat) audited(conv string) *past {
	c.Helper()
	p := &past{epoch: c.epoch(conv), events: map[int64]logged{}, purges: []purged{{1, 0}}}
	rows, err := c.pool.Query(c.ctx, `SELECT seq, kind, sender_user, cmid, body FROM tidings.lab_event`)
	c.Must("read the audit", err)
	for rows.Next() {
		var e logged
		c.Must("read the audit", rows.Scan(&e.seq, &e.kind, &e.sender, &e.cmid, &e.body))
		p.events[e.seq] = e
	}
	c.Must("read the audit", rows.Err())
	rows, err = c.pool.Query(c.ctx, `SELECT min_seq, head FROM tidings.lab_purge ORDER BY n`)
	c.Must("read the audit", err)
	for rows.Next() {
		var x purged
		c.Must("read the audit", rows.Scan(&x.minSeq, &x.head))
		p.purges = append(p.purges, x)
	}
	c.Must("read the audit", rows.Err())
	return p
}

// judge says what is wrong with a page, "" if a sync in one moment could have given it.
func (p *past) judge(t told) string {
	head, last := t.page.num("head"), t.page.num("after")
	in, open := p.seats(t.user, head)
	latest := head // where the log may have ended at that moment
	if !open {
		if e := p.events[head]; e.kind != "leave" || e.sender != t.user {
			return "the head of one who has left is not the leave"
		}
		for next, ok := p.events[latest+1]; ok && (next.kind != "join" || next.sender != t.user); next, ok = p.events[latest+1] {
			latest++
		}
	}
	minSeq := t.page.num("min_seq")
	switch {
	case t.page.num("epoch") != p.epoch:
		return "another epoch"
	case latest < t.head:
		return "it is from before the request"
	case !p.possible(minSeq, head, latest):
		return fmt.Sprintf("min_seq was never %d while the head was %d to %d", minSeq, head, latest)
	case minSeq < min(t.minSeq, head+1):
		return "min_seq is from before the request"
	}
	events, ranges, trimmed := t.page.list("events"), t.page.list("withheld"), false
	explained := func(seq int64, why string) string {
		want := "an event"
		if !in(seq) {
			want = "not_member"
		} else if seq < minSeq {
			want, trimmed = "trimmed", true
		}
		if last = seq; why != want {
			return fmt.Sprintf("%d is %s and should be %s", seq, why, want)
		}
		return ""
	}
	for len(events)+len(ranges) > 0 {
		switch {
		case len(ranges) > 0 && ranges[0].num("from") == last+1 && ranges[0].num("to") > last:
			for seq := last + 1; seq <= min(ranges[0].num("to"), head+1); seq++ {
				if wrong := explained(seq, ranges[0].str("why")); wrong != "" {
					return wrong
				}
			}
			ranges = ranges[1:]
		case len(events) > 0 && events[0].num("seq") == last+1:
			e := events[0]
			if wrong := explained(last+1, "an event"); wrong != "" {
				return wrong
			}
			if (logged{last, e.str("kind"), e.str("sender"), e.str("cmid"), e.str("body")}) != p.events[last] {
				return fmt.Sprintf("event %d is another one", last)
			}
			events = events[1:]
		default:
			return fmt.Sprintf("nothing explains %d", last+1)
		}
	}
	switch {
	case last > head:
		return "it goes beyond the head"
	case !t.page.flag("more") && last != head:
		return fmt.Sprintf("it ends at %d, the head is %d, and there is no more", last, head)
	case trimmed != t.page.flag("trimmed"):
		return "trimmed is wrong"
	}
	return ""
}

// seats tells of a user at which seqs there is a membership, as far as the log up to head says, and whether it is open there.
func (p *past) seats(user string, head int64) (in func(seq int64) bool, open bool) {
	type seat struct{ from, to int64 }
	var seats []seat
	for seq := int64(1); seq <= head; seq++ {
		e := p.events[seq]
		switch {
		case e.sender != user:
		case e.kind == "join":
			seats, open = append(seats, seat{seq, head}), true
		case e.kind == "leave":
			seats[len(seats)-1].to, open = seq, false
		}
	}
	return func(seq int64) bool {
		return slices.ContainsFunc(seats, func(s seat) bool { return s.from <= seq && seq <= s.to })
	}, open
}

// possible tells whether min_seq, as it is told to one whose head is there, could be that while the log ended between two seqs.
func (p *past) possible(minSeq, head, latest int64) bool {
	for i, x := range p.purges {
		over := i+1 < len(p.purges) && p.purges[i+1].head < head
		if x.head <= latest && !over && minSeq == min(x.minSeq, head+1) {
			return true
		}
	}
	return false
}
