// Tests of the judgement without a database: positions, places, records.

package store

import (
	"testing"
	"time"
)

func TestLSN(t *testing.T) {
	for text, want := range map[string]lsn{"0/0": 0, "0/16B3748": 0x16B3748, "1A/FFFFFFFF": 0x1AFFFFFFFF, "FFFFFFFF/1": 0xFFFFFFFF00000001} {
		if got, err := parseLSN(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s was read as %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "0", "0/", "/0", "x/0", "0/100000000", "1/2/3", "-1/0"} {
		if got, err := parseLSN(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestPlacesDiffer(t *testing.T) {
	was := place{system: "1", timeline: 3, at: 100, database: 5, log: 16384}
	for name, c := range map[string]struct {
		change func(*place)
		why    string
	}{
		"the same":                    {func(*place) {}, ""},
		"later":                       {func(p *place) { p.at++ }, ""},
		"a higher timeline, earlier":  {func(p *place) { p.timeline, p.at = 4, 1 }, ""},
		"earlier":                     {func(p *place) { p.at-- }, "its position is lower"},
		"a lower timeline, later":     {func(p *place) { p.timeline, p.at = 2, 1000 }, "its timeline is lower"},
		"another system":              {func(p *place) { p.system = "2" }, "its system identifier is another"},
		"another database":            {func(p *place) { p.database++ }, "its object ids are others"},
		"another table":               {func(p *place) { p.log++ }, "its object ids are others"},
		"another system, much later":  {func(p *place) { p.system, p.at = "2", 1<<40 }, "its system identifier is another"},
		"another table and timeline":  {func(p *place) { p.log, p.timeline = 1, 9 }, "its object ids are others"},
		"another position and system": {func(p *place) { p.at, p.system = 1, "2" }, "its system identifier is another"},
	} {
		now := was
		c.change(&now)
		if got := was.differs(&now); got != c.why {
			t.Errorf("%s: %q, want %q", name, got, c.why)
		}
	}
}

func TestRecordsCompare(t *testing.T) {
	at := time.Now()
	rising := []*record{nil, {generation: 2, recorded: at}, {generation: 2, recorded: at.Add(time.Microsecond)}, {generation: 1 << 52, recorded: at.Add(-time.Hour)}, {generation: 1<<52 + 1}}
	for i, a := range rising {
		for j, b := range rising {
			if got, want := a.compare(b), max(-1, min(1, i-j)); got != want {
				t.Errorf("%d with %d: %d", i, j, got)
			}
		}
	}
}

func TestRing(t *testing.T) {
	var r ring[int]
	r.put(1)
	if len(r.all()) != 0 {
		t.Error("a ring without room holds something")
	}
	r.grow(1)
	for i := range 3 * leastRing {
		r.put(i)
		all := r.all()
		if want := min(i+1, leastRing); len(all) != want || all[len(all)-1] != i || all[0] != i-want+1 {
			t.Fatalf("after %d: %v", i, all)
		}
	}
	r.grow(10)
	r.put(-1)
	if all := r.all(); len(all) != leastRing+1 || all[leastRing] != -1 || all[0] != 2*leastRing {
		t.Errorf("after it grew: %v", all)
	}
	r.clear()
	r.put(7)
	if all := r.all(); len(all) != 1 || all[0] != 7 {
		t.Errorf("after it was emptied: %v", all)
	}
}
