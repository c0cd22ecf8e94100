// The command review: tasks that wait for a person.

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

type reviewCmd struct {
	List    reviewListCmd    `cmd:"" default:"withargs" help:"List the tasks that wait for a person, oldest doubt first."`
	Show    reviewShowCmd    `cmd:"" help:"Show a task: content, address, journal, what is unknown, and what the provider promises."`
	Resolve reviewResolveCmd `cmd:"" help:"Settle tasks: one by its id, or all that a filter finds."`
}

type reviewPage struct {
	Reviews []store.ReviewItem `json:"reviews"`
	Next    string             `json:"next,omitempty"`
}

// reviewFilter are the flags that narrow a list of reviews.
type reviewFilter struct {
	Channel string `help:"Only of this channel."`
	User    string `help:"Only of this user."`
	Limit   int    `default:"50" help:"At most so many, up to 500."`
	After   string `help:"Cursor of the page before."`
}

func (f reviewFilter) list(e *env, r remote) (page reviewPage, err error) {
	query := url.Values{"channel": {f.Channel}, "user": {f.User}, "limit": {strconv.Itoa(f.Limit)}, "after": {f.After}}
	return page, r.call(e, http.MethodGet, "/v1/reviews?"+query.Encode(), nil, &page)
}

type reviewListCmd struct {
	remote
	asJSON
	reviewFilter
}

func (c *reviewListCmd) Run(e *env) error {
	page, err := c.list(e, c.remote)
	if err != nil {
		return err
	}
	return c.print(e, page, func() {
		table(e.stdout, func(row func(...any)) {
			row("TASK", "CHANNEL", "USER", "EVENT", "ATTEMPTS", "IN DOUBT FOR", "LAST ERROR")
			for _, t := range page.Reviews {
				row(t.ID, place(t.Channel, t.Slot), t.User, t.EventKey, t.AttemptCount, ago(t.DoubtAt), t.LastError)
			}
		})
		if page.Next != "" {
			fmt.Fprintf(e.stdout, "more: --after %s\n", page.Next)
		}
	})
}

type reviewShowCmd struct {
	remote
	asJSON
	Task string `arg:"" help:"The task's id."`
}

func (c *reviewShowCmd) Run(e *env) error {
	t, err := c.task(e, c.Task)
	if err != nil {
		return err
	}
	return c.print(e, t, func() { printReview(e.stdout, t) })
}

// task reads a task.
func (r remote) task(e *env, text string) (t api.Review, err error) {
	id, err := tidings.ParseUUID(text)
	if err != nil {
		return t, usage(err)
	}
	return t, r.call(e, http.MethodGet, "/v1/reviews/"+id.String(), nil, &t)
}

// verb is what a person says about a task, in any case of letters.
type verb string

// UnmarshalText reads one of api.Verbs.
func (v *verb) UnmarshalText(text []byte) error {
	for _, known := range api.Verbs {
		if strings.EqualFold(string(text), known) {
			*v = verb(known)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(api.Verbs, ", "))
}

type reviewResolveCmd struct {
	remote
	asJSON
	reviewFilter
	State        verb   `arg:"" help:"SENT: it was sent. FAILED: it was not. resend: send it once more, a second copy is acceptable."`
	Task         string `arg:"" optional:"" help:"The task's id."`
	AttemptCount *int   `help:"The attempt count of the page that you saw, for one task. Without it the page is shown and nothing is settled."`
	All          bool   `help:"Instead of one task: all on the page that --channel, --user, --limit and --after describe."`
	Yes          bool   `help:"With --all: settle them. Each with the attempt count that is read right before, so nobody has seen it."`
	Note         string `help:"Why; stands in the journal."`
}

func (c *reviewResolveCmd) Run(e *env) error {
	var resolutions []api.TaskResolution
	switch {
	case c.All == (c.Task != ""):
		return usage(errors.New("name a task, or give --all"))
	case c.All && c.AttemptCount != nil:
		return usage(errors.New("--attempt-count is for one task"))
	case c.All:
		page, err := c.list(e, c.remote)
		if err != nil {
			return err
		}
		if !c.Yes {
			return usage(fmt.Errorf("that would settle %s as %s: add --yes", count(len(page.Reviews), "task"), c.State))
		}
		for _, t := range page.Reviews {
			resolutions = append(resolutions, c.resolution(t.ID, t.AttemptCount))
		}
	case c.AttemptCount == nil:
		t, err := c.task(e, c.Task)
		if err != nil {
			return err
		}
		if err := c.print(e, t, func() { printReview(e.stdout, t) }); err != nil {
			return err
		}
		return usage(fmt.Errorf("nothing is settled yet: if that is what you know of it, repeat with --attempt-count %d", t.AttemptCount))
	default:
		id, err := tidings.ParseUUID(c.Task)
		if err != nil {
			return usage(err)
		}
		resolutions = append(resolutions, c.resolution(id, *c.AttemptCount))
	}
	var answer struct {
		Results []api.Resolved `json:"results"`
	}
	if len(resolutions) > 0 {
		in := map[string]any{"resolutions": resolutions}
		if err := c.call(e, http.MethodPost, "/v1/reviews", in, &answer); err != nil {
			return err
		}
	}
	refused := 0
	for _, r := range answer.Results {
		if r.Problem != nil {
			refused++
		}
	}
	err := c.print(e, answer, func() {
		for _, r := range answer.Results {
			if r.Problem != nil {
				fmt.Fprintf(e.stdout, "%s %s\n", r.Task, r.Problem.Error())
			}
		}
		fmt.Fprintf(e.stdout, "%d resolved as %s, %d refused\n", len(answer.Results)-refused, c.State, refused)
	})
	if err == nil && refused > 0 {
		return errNo
	}
	return err
}

func (c *reviewResolveCmd) resolution(task tidings.UUID, attempts int) api.TaskResolution {
	return api.TaskResolution{Task: task, Resolution: api.Resolution{State: string(c.State), Note: c.Note, AttemptCount: attempts}}
}
