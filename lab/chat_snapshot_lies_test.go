// Pages with a lie in them, for the oracle of synced pages.

package lab_test

import (
	"encoding/json"
	"fmt"
	"slices"
)

// lies are ways to doctor a page of a log; each returns false when the page gives no occasion.
var lies = map[string]func(p *past, page frame) bool{
	"an event is left out": func(_ *past, page frame) bool {
		list, _ := page["events"].([]any)
		if len(list) < 3 {
			return false
		}
		page["events"] = slices.Delete(list, 1, 2)
		return true
	},
	"an event is called trimmed": func(_ *past, page frame) bool {
		list, _ := page["events"].([]any)
		if len(list) == 0 || len(page.list("withheld")) > 0 {
			return false
		}
		seq := page.list("events")[0]["seq"]
		page["events"], page["trimmed"], page["withheld"] = list[1:], true, []any{map[string]any{"from": seq, "to": seq, "why": "trimmed"}}
		return true
	},
	"a reason is the other one": func(_ *past, page frame) bool {
		for _, w := range page.list("withheld") {
			w["why"] = map[string]string{"trimmed": "not_member", "not_member": "trimmed"}[w.str("why")]
			return true
		}
		return false
	},
	"a range ends later": func(_ *past, page frame) bool {
		for _, w := range page.list("withheld") {
			w["to"] = float64(w.num("to") + 1)
			return true
		}
		return false
	},
	"min_seq is from before a purge": func(p *past, page frame) bool {
		for i := 1; i < len(p.purges); i++ {
			if x := p.purges[i]; x.minSeq == page.num("min_seq") && x.head < page.num("head") {
				page["min_seq"] = float64(p.purges[i-1].minSeq)
				return true
			}
		}
		return false
	},
	"the head is a later one": func(_ *past, page frame) bool {
		page["head"] = float64(page.num("head") + 1)
		return !page.flag("more")
	},
	"a body is another one": func(_ *past, page frame) bool {
		for _, e := range page.list("events") {
			if e.has("body") {
				e["body"] = e.str("body") + "!"
				return true
			}
		}
		return false
	},
	"trimmed is the opposite": func(_ *past, page frame) bool {
		page["trimmed"] = !page.flag("trimmed")
		return true
	},
	"it ends too early": func(_ *past, page frame) bool {
		list, _ := page["events"].([]any)
		if page.flag("more") || len(list) == 0 || len(page.list("withheld")) > 0 {
			return false
		}
		page["events"] = list[:len(list)-1]
		return true
	},
}

// doctored are copies of a page with one lie each.
func (p *past) doctored(t told) map[string]told {
	raw, err := json.Marshal(t.page)
	all := map[string]told{}
	for name, lie := range lies {
		x := t
		x.page = nil
		if err == nil {
			err = json.Unmarshal(raw, &x.page)
		}
		if err != nil {
			panic(fmt.Sprintf("copy a page: %v", err))
		}
		if lie(p, x.page) {
			all[name] = x
		}
	}
	return all
}
