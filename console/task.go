// The page of one task, and what a person says about it.

package console

import (
	"net/http"
	"net/url"
)

// taskPage is everything that is known of a task, and the form to settle it.
type taskPage struct {
	task
	Verbs   []verb
	Problem *refusal // why what was said about it was not carried out
	Note    string   // that was typed then
	Chosen  string
}

func readTask(v *visit, id string) (t task, err error) {
	return t, v.get("/v1/reviews/"+url.PathEscape(id), nil, &t)
}

func showTask(v *visit) error {
	t, err := readTask(v, v.r.PathValue("task"))
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "task", title(t), "reviews", taskPage{task: t, Verbs: verbs})
	return nil
}

func title(t task) string { return t.EventKey + " for " + t.User }

// resolveTask carries out a person's word about one task. Where it is refused, the page shows the task as it is now, with the reason and what was typed.
func resolveTask(v *visit) error {
	id := v.r.PathValue("task")
	said, err := verbOf(v.value("state"))
	var count int
	if err == nil {
		count, err = number(v.value("attempt_count"))
	}
	if err == nil {
		err = v.post("/v1/reviews/"+url.PathEscape(id), resolution{State: said.State, Note: v.value("note"), AttemptCount: count}, nil)
	}
	if err == nil {
		v.done(home+"/tasks/"+url.PathEscape(id), "Recorded as %s in the name of %s. The journal below has it.", said.State, v.Operator)
		return nil
	}
	problem := refusalOf(err)
	t, again := readTask(v, id)
	if again != nil || problem.Code == "INTERNAL" {
		return err
	}
	v.show(problem.Status, "task", title(t), "reviews", taskPage{task: t, Verbs: verbs, Problem: problem, Note: v.value("note"), Chosen: said.State})
	return nil
}
