// The operation by which operators find tasks.

package api

import (
	"context"

	"github.com/tidings-project/tidings/internal/store"
)

func (a *API) operatorTasks() {
	type tasksIn struct {
		User       string `query:"user" maxLength:"128" doc:"Whose tasks."`
		EventKey   string `query:"event_key" maxLength:"128" doc:"Only of this event."`
		ProviderID string `query:"provider_id" maxLength:"512" doc:"What the provider calls the message, in its answer or in a receipt."`
		Limit      int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
		After      string `query:"after" doc:"The cursor that the page before gave as next."`
	}
	type tasksOut struct {
		Body struct {
			Tasks   []store.TaskItem `json:"tasks"`
			Next    string           `json:"next,omitempty" doc:"Cursor of the next page; absent on the last."`
			Partial bool             `json:"partial,omitempty" doc:"The user has more than 10000 notifications: only those with the first 10000 event keys were looked at. Name the event."`
		}
	}
	register(a, operatorOp("tasks", "list-tasks", "Find tasks by user or provider's id, newest first",
		"user or provider_id is required. GET /v1/reviews/{task} shows one of them with its journal. Notifications without a task are not among them, nor purged ones."),
		[]string{store.ScopeOperate}, func(ctx context.Context, in *tasksIn) (*tasksOut, error) {
			out := &tasksOut{}
			var err error
			out.Body.Tasks, out.Body.Next, out.Body.Partial, err = a.store.FindTasks(ctx,
				store.TaskFilter{User: in.User, EventKey: in.EventKey, ProviderMsgID: in.ProviderID, Limit: in.Limit, After: in.After})
			return out, err
		})
}
