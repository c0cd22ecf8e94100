// Holds docs/contract.md to the catalogue and the cards.

package report_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/report"
)

var namedCheck = regexp.MustCompile(`\b[0-9]{2}-[A-Za-z][A-Za-z0-9-]*`)

// breaches are the ways in which a contract and what it rests on do not agree.
func breaches(contract string, cards []report.Card) (all []string) {
	named := namedCheck.FindAllString(contract, -1)
	for _, id := range named {
		if _, known := lab.Find(id); !known {
			all = append(all, "unknown check "+id)
		}
	}
	text := strings.Join(strings.Fields(contract), " ")
	for _, card := range cards {
		if promise := strings.Join(strings.Fields(card.Promise), " "); !strings.Contains(text, "**"+card.ID+"** "+promise) {
			all = append(all, "the promise of "+card.ID+" is missing")
		}
		for _, id := range card.Shows() {
			if !slices.Contains(named, id) {
				all = append(all, card.ID+" rests on "+id+", which is not named")
			}
		}
	}
	for section := range strings.SplitSeq(contract, "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		if !strings.Contains(title, "guarantee") && !strings.Contains(title, "nobody") {
			continue
		}
		for _, id := range namedCheck.FindAllString(body, -1) {
			if c, _ := lab.Find(id); c.NotRun != "" && strings.Contains(title, "guarantee") {
				all = append(all, "guaranteed by "+id+", which is not run")
			}
		}
		for line := range strings.SplitSeq(body, "\n") {
			if strings.HasPrefix(line, "- ") && !namedCheck.MatchString(line) {
				all = append(all, "no check stands behind: "+line)
			}
		}
	}
	return all
}

func TestContract(t *testing.T) {
	data, err := os.ReadFile("../../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	contract := string(data)
	cards, refused := report.ReadCards(os.DirFS(cardDir))
	if len(cards) != promises || len(refused) != 0 {
		t.Fatalf("%d cards, refused: %v", len(cards), refused)
	}
	for _, breach := range breaches(contract, cards) {
		t.Error(breach)
	}

	// The same judgement refuses a contract that says other things.
	for _, x := range []struct{ old, new, want string }{
		{"`33-N1`", "`33-N17`", "unknown check 33-N17"},
		{"`33-N1`", "`33-N1`, `23-tls`", "guaranteed by 23-tls, which is not run"},
		{"`11-recall-rejections`", "", "R6 rests on 11-recall-rejections"},
		{"**P7** No task is stuck", "**P7** Hardly a task is stuck", "the promise of P7 is missing"},
		{"beside sends and syncs: `11-purge-keeps-contiguity`", "beside sends and syncs", "no check stands behind: - A purge takes"},
	} {
		if doctored := strings.ReplaceAll(contract, x.old, x.new); doctored == contract || !strings.Contains(strings.Join(breaches(doctored, cards), "\n"), x.want) {
			t.Errorf("%q in the place of %q is accepted", x.new, x.old)
		}
	}
}
