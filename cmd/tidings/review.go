package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

type reviewCmd struct {
	List    reviewListCmd    `cmd:"" default:"withargs" help:"List the tasks that wait for a person, oldest doubt first."`
	Show    reviewShowCmd    `cmd:"" help:"Show a task with its journal."`
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
	return c.print(e, t, func() {
		fmt.Fprintf(e.stdout, "%s for %s on %s: %s\n", t.EventKey, t.User, place(t.Channel, t.Slot), state(t.Task))
		fmt.Fprintf(e.stdout, "reference at the provider: %s, its id: %s\n", t.ID.Key(), t.ProviderMsgID)
		fmt.Fprintf(e.stdout, "expires %s\n", t.ExpiresAt.Format(time.RFC3339))
		table(e.stdout, func(row func(...any)) {
			row("N", "ACTION", "STARTED", "OUTCOME", "BY", "DETAIL")
			for _, a := range t.Attempts {
				row(a.N, a.Action, a.StartedAt.Format(time.RFC3339), a.Outcome, a.Worker, a.Detail)
			}
		})
	})
}

// task reads a task.
func (r remote) task(e *env, text string) (t store.TaskDetail, err error) {
	id, err := tidings.ParseUUID(text)
	if err != nil {
		return t, err
	}
	return t, r.call(e, http.MethodGet, "/v1/reviews/"+id.String(), nil, &t)
}

type reviewResolveCmd struct {
	remote
	asJSON
	reviewFilter
	State        string `arg:"" enum:"SENT,FAILED,resend" help:"SENT: it was sent. FAILED: it was not. resend: send it once more, a second copy is acceptable."`
	Task         string `arg:"" optional:"" help:"The task's id."`
	All          bool   `help:"Instead of one task: all on the page that --channel, --user, --limit and --after describe."`
	AttemptCount int    `default:"-1" help:"The attempt count that you saw. Default: the one that is read right before."`
	Note         string `help:"Why; stands in the journal."`
}

func (c *reviewResolveCmd) Run(e *env) error {
	var resolutions []api.TaskResolution
	switch {
	case c.All == (c.Task != ""):
		return tidings.Errorf(tidings.InvalidArgument, "name a task, or give --all")
	case c.All:
		page, err := c.list(e, c.remote)
		if err != nil {
			return err
		}
		for _, t := range page.Reviews {
			resolutions = append(resolutions, c.resolution(t.Task))
		}
	default:
		t, err := c.task(e, c.Task)
		if err != nil {
			return err
		}
		resolutions = append(resolutions, c.resolution(t.Task))
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

func (c *reviewResolveCmd) resolution(t store.Task) api.TaskResolution {
	count := c.AttemptCount
	if count < 0 {
		count = t.AttemptCount
	}
	return api.TaskResolution{Task: t.ID, Resolution: api.Resolution{State: c.State, Note: c.Note, AttemptCount: count}}
}
