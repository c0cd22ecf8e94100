// The operations on parked tasks.

package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// Review is a task as a person needs to see it: what was sent to where, what came back, what is unknown, and what the provider
// promises.
type Review struct {
	store.TaskDetail
	Unknown  string    `json:"unknown,omitempty" doc:"What is not known of it; absent when nothing is in doubt."`
	Contract *Contract `json:"contract,omitempty" doc:"What the provider promises; absent when this process does not have the channel."`
}

// unknown says in words what a task's journal leaves open. A person may have settled it: the doubt stays on record.
func unknown(t store.TaskDetail) string {
	if !t.InDoubt {
		return ""
	}
	for i, a := range slices.Backward(t.Attempts) {
		switch {
		case a.Outcome == tidings.RecoveredInDoubt:
			return "whether it was sent in the time that a restore lost"
		case a.Action != tidings.ActionSend || a.Outcome == tidings.NotSent || a.Outcome == tidings.Throttled:
		case a.Outcome == "":
			return fmt.Sprintf("whether the provider accepts it: attempt %d is under way, or its worker is gone", a.N)
		default:
			open := fmt.Sprintf("whether the provider accepted it: attempt %d to send it ended as %s", a.N, a.Outcome)
			if slices.ContainsFunc(t.Attempts[:i], func(a store.Attempt) bool { return a.Action == tidings.ActionSend }) {
				open += "; an earlier one may be open, too"
			}
			return open
		}
	}
	return "whether the provider accepted it"
}

// Resolution is a person's word about a parked task.
type Resolution struct {
	State        string `json:"state" doc:"In any case of letters. SENT: it was sent. FAILED: it was not. resend: send it once more and accept a possible second copy."`
	Note         string `json:"note,omitempty" maxLength:"2000" doc:"Why; stands in the journal."`
	AttemptCount int    `json:"attempt_count" minimum:"0" doc:"The attempt_count that was seen. If it has changed the answer is CONFLICT: look again."`
}

// Verbs are the values of Resolution.State.
var Verbs = []string{store.VerbSent, store.VerbFailed, store.VerbResend}

// TaskResolution is a Resolution among many.
type TaskResolution struct {
	Task tidings.UUID `json:"task"`
	Resolution
}

// Resolved is the answer to a TaskResolution.
type Resolved struct {
	Task    tidings.UUID `json:"task"`
	Problem *Problem     `json:"problem,omitempty" doc:"Why it was not carried out; absent when it was."`
}

// TaskPath names a task.
type TaskPath struct {
	Task tidings.UUID `path:"task"`
}

func (a *API) reviews() {
	scopes := []string{store.ScopeReview}
	tags := []string{"reviews"}

	type reviewsIn struct {
		Channel string `query:"channel" doc:"Only of this channel."`
		User    string `query:"user" doc:"Only of this user."`
		Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
		After   string `query:"after" doc:"The cursor that the page before gave as next."`
	}
	type reviewsOut struct {
		Body struct {
			Reviews []store.ReviewItem `json:"reviews"`
			Next    string             `json:"next,omitempty" doc:"Cursor of the next page; absent on the last."`
		}
	}
	register(a, huma.Operation{OperationID: "list-reviews", Method: http.MethodGet, Path: "/v1/reviews", Tags: tags,
		Summary: "List the tasks that wait for a person, oldest doubt first"},
		scopes, func(ctx context.Context, in *reviewsIn) (*reviewsOut, error) {
			items, next, err := a.store.ListReviews(ctx, store.ReviewFilter{Channel: in.Channel, User: in.User, Limit: in.Limit, After: in.After})
			out := &reviewsOut{}
			out.Body.Reviews, out.Body.Next = items, next
			return out, err
		})

	type taskOut struct{ Body Review }
	register(a, huma.Operation{OperationID: "get-review", Method: http.MethodGet, Path: "/v1/reviews/{task}", Tags: tags,
		Summary: "Read a task with its content, address and journal, and with what is unknown of it"},
		scopes, func(ctx context.Context, in *TaskPath) (*taskOut, error) {
			detail, err := a.store.TaskDetail(ctx, in.Task)
			out := &taskOut{Review{TaskDetail: detail, Unknown: unknown(detail)}}
			if transport := a.channels[detail.Channel]; transport != nil {
				out.Body.Contract = contractOf(transport)
			}
			return out, err
		})

	type resolveIn struct {
		TaskPath
		Body Resolution
	}
	type resolveOut struct{ Body Resolved }
	register(a, huma.Operation{OperationID: "resolve-review", Method: http.MethodPost, Path: "/v1/reviews/{task}", Tags: tags,
		Summary: "Settle a parked task, once"},
		scopes, func(ctx context.Context, in *resolveIn) (*resolveOut, error) {
			if err := a.store.Resolve(ctx, in.Body.of(ctx, in.Task)); err != nil {
				return nil, err
			}
			a.wake()
			return &resolveOut{Resolved{Task: in.Task}}, nil // reading the task could fail, and what was done was done
		})

	type manyIn struct {
		Body struct {
			Resolutions []TaskResolution `json:"resolutions" minItems:"1" maxItems:"500"`
		}
	}
	type manyOut struct {
		Body struct {
			Results []Resolved `json:"results" doc:"In the order of the resolutions."`
		}
	}
	register(a, huma.Operation{OperationID: "resolve-reviews", Method: http.MethodPost, Path: "/v1/reviews", Tags: tags,
		Summary: "Settle many parked tasks, each on its own"},
		scopes, func(ctx context.Context, in *manyIn) (*manyOut, error) {
			var all []store.Resolution
			for _, r := range in.Body.Resolutions {
				all = append(all, r.of(ctx, r.Task))
			}
			out := &manyOut{}
			for i, err := range a.store.ResolveMany(ctx, all) {
				one := Resolved{Task: all[i].Task}
				if err != nil {
					a.report(ctx, "POST /v1/reviews", err)
					one.Problem = problemOf(err)
				}
				out.Body.Results = append(out.Body.Results, one)
			}
			a.wake()
			return out, nil
		})
}

func (r Resolution) of(ctx context.Context, task tidings.UUID) store.Resolution {
	verb := r.State
	for _, v := range Verbs {
		if strings.EqualFold(verb, v) {
			verb = v
		}
	}
	return store.Resolution{Task: task, Verb: verb, Note: r.Note, By: by(ctx), AttemptCount: r.AttemptCount}
}
