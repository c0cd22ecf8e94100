// The queue of tasks that wait for a person; settling many of them.

package console

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// reviewsShown is how many tasks a page of the queue has, and can be settled at once: what became of each fits a cookie.
const reviewsShown = 50

// reviewsPage is a page of the queue.
type reviewsPage struct {
	Reviews       []task `json:"reviews"`
	Next          string `json:"next"`
	Channel, User string
	Verbs         []verb
	More, First   string // addresses; empty: there is none
}

func listReviews(v *visit) error {
	p := reviewsPage{Channel: v.value("channel"), User: v.value("user"), Verbs: verbs}
	query := url.Values{"channel": {p.Channel}, "user": {p.User}, "after": {v.value("after")}, "limit": {strconv.Itoa(reviewsShown)}}
	if err := v.get("/v1/reviews", query, &p); err != nil {
		return err
	}
	p.More, p.First = pagesOf(home+"/reviews", query, p.Next)
	v.show(http.StatusOK, "reviews", "Reviews", "reviews", p)
	return nil
}

// resolution is a person's word about a task.
type resolution struct {
	Task         string `json:"task,omitempty"`
	State        string `json:"state"`
	Note         string `json:"note,omitempty"`
	AttemptCount int    `json:"attempt_count"`
}

// picked is a task that was picked for settling.
type picked struct {
	task
	Seen int    // the attempt count that was seen
	Why  string // it cannot be settled now; empty: it can
}

// picks reads what task.Pick wrote.
func picks(values []string) (all []picked, err error) {
	seen := map[string]bool{}
	for _, value := range values {
		id, count, _ := strings.Cut(value, ".")
		n, err := number(count)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			all = append(all, picked{task: task{ID: id}, Seen: n})
		}
	}
	if len(all) > reviewsShown {
		return nil, invalid(fmt.Sprintf("At most %d tasks can be settled at once.", reviewsShown))
	}
	return all, nil
}

func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, invalid("An attempt count is missing: go back and load the page again.")
	}
	return n, nil
}

// confirmPage lists what would be done.
type confirmPage struct {
	Verb  verb
	Tasks []picked
	Ready int // of them can be settled
}

// confirmReviews shows what would be done, to each task as it is now. It changes nothing.
func confirmReviews(v *visit) error {
	said, err := verbOf(v.value("state"))
	if err != nil {
		return err
	}
	from := "task"
	if v.value("which") == "all" {
		from = "all"
	}
	p := confirmPage{Verb: said}
	if p.Tasks, err = picks(v.r.Form[from]); err != nil {
		return err
	}
	for i := range p.Tasks {
		one := &p.Tasks[i]
		id := one.ID
		one.task, err = readTask(v, id)
		switch {
		case err != nil && refusalOf(err).Status < 500 && refusalOf(err).Code != "UNAUTHENTICATED":
			one.ID, one.Why = id, err.Error()
		case err != nil:
			return err
		case !one.Review:
			one.Why = "it waits for nobody any more: it is " + one.State
		case one.AttemptCount != one.Seen:
			one.Why = fmt.Sprintf("it has %d attempts by now, you saw %d: look at it again", one.AttemptCount, one.Seen)
		default:
			p.Ready++
		}
	}
	v.show(http.StatusOK, "confirm", "Confirm", "reviews", p)
	return nil
}

// results are what became of many resolutions, short enough for a cookie.
type results struct {
	State string   `json:"s"`
	Done  []string `json:"d,omitempty"`
	Open  []open   `json:"o,omitempty"`
}

// open are tasks that were not settled for one reason.
type open struct {
	Why   string   `json:"w"`
	Tasks []string `json:"t"`
}

// Unknown tells whether they may have been settled nevertheless: the answer was lost.
func (o open) Unknown() bool {
	return strings.HasPrefix(o.Why, "OUTCOME_UNKNOWN") || strings.HasPrefix(o.Why, "INTERNAL")
}

// resultsCookie keeps the results for their page, which can be loaded again for a while.
const (
	resultsCookie = "tidings_results"
	resultsTime   = 10 * time.Minute
	resultsSize   = 2800 // of their JSON in bytes; a browser keeps cookies of 4096
)

func resolveReviews(v *visit) error {
	said, err := verbOf(v.value("state"))
	if err != nil {
		return err
	}
	chosen, err := picks(v.r.PostForm["task"])
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		return invalid("No task was picked.")
	}
	in := struct {
		Resolutions []resolution `json:"resolutions"`
	}{}
	for _, p := range chosen {
		in.Resolutions = append(in.Resolutions, resolution{Task: p.ID, State: said.State, Note: v.value("note"), AttemptCount: p.Seen})
	}
	var out struct {
		Results []struct {
			Task    string   `json:"task"`
			Problem *refusal `json:"problem"`
		} `json:"results"`
	}
	if err := v.post("/v1/reviews", in, &out); err != nil {
		return err
	}
	r := results{State: said.State}
	for _, one := range out.Results {
		if one.Problem == nil {
			r.Done = append(r.Done, short(one.Task))
		} else {
			r.add(short(one.Task), one.Problem.Error())
		}
	}
	r.fit()
	setCookie(v.w, v.r, resultsCookie, r, resultsTime)
	http.Redirect(v.w, v.r, home+"/reviews/results", http.StatusSeeOther)
	return nil
}

// add puts a task that was not settled to those of the same reason.
func (r *results) add(task, why string) {
	for i := range r.Open {
		if r.Open[i].Why == why {
			r.Open[i].Tasks = append(r.Open[i].Tasks, task)
			return
		}
	}
	r.Open = append(r.Open, open{why, []string{task}})
}

// fit leaves the codes of the reasons, where the whole of them is too much for a cookie.
func (r *results) fit() {
	size := 0
	for _, o := range r.Open {
		size += len(o.Why) + 26*len(o.Tasks)
	}
	if size+26*len(r.Done) <= resultsSize {
		return
	}
	long := r.Open
	r.Open = nil
	for _, o := range long {
		code, _, _ := strings.Cut(o.Why, ":")
		for _, task := range o.Tasks {
			r.add(task, code)
		}
	}
}

// short is a task's id in as few letters as a cookie allows; long is the id again.
func short(id string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil {
		return id
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func long(text string) string {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 16 {
		return text
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

func showResults(v *visit) error {
	var r results
	if !readCookie(v.r, resultsCookie, &r) {
		http.Redirect(v.w, v.r, home+"/reviews", http.StatusSeeOther)
		return nil
	}
	for i := range r.Done {
		r.Done[i] = long(r.Done[i])
	}
	for i := range r.Open {
		for j := range r.Open[i].Tasks {
			r.Open[i].Tasks[j] = long(r.Open[i].Tasks[j])
		}
	}
	v.show(http.StatusOK, "results", "What was done", "reviews", r)
	return nil
}
