// Tasks, attempts and contracts as the API gives them.

package console

import (
	"fmt"
	"strings"
	"time"
)

// task is one that waits for a person, or any other.
type task struct {
	ID            string     `json:"id"`
	Notification  string     `json:"notification"`
	User          string     `json:"user"`
	Channel       string     `json:"channel"`
	Slot          string     `json:"slot"`
	Priority      int        `json:"priority"`
	State         string     `json:"state"`
	Review        bool       `json:"review"`
	InDoubt       bool       `json:"in_doubt"`
	AttemptCount  int        `json:"attempt_count"`
	BudgetLeft    int        `json:"budget_left"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	LeaseOwner    string     `json:"lease_owner"`
	LeaseUntil    *time.Time `json:"lease_until"`
	FirstCallAt   *time.Time `json:"first_call_at"`
	DoubtAt       *time.Time `json:"doubt_at"`
	SettledBy     string     `json:"settled_by"`
	ProviderMsgID string     `json:"provider_msg_id"`
	LastError     string     `json:"last_error"`
	EventKey      string     `json:"event_key"`
	Title         string     `json:"title"`
	Body          string     `json:"body"`
	Address       string     `json:"address"`
	CreatedAt     time.Time  `json:"created_at"`
	ExpiresAt     time.Time  `json:"expires_at"`
	CancelledAt   *time.Time `json:"cancelled_at"`
	ErasedAt      *time.Time `json:"erased_at"`
	Attempts      []attempt  `json:"attempts"`
	About         *about     `json:"about"`
	Preview       bool       `json:"preview"` // its body is the text of the message that it is about, and not stored with it
	Unknown       string     `json:"unknown"`
	Contract      *contract  `json:"contract"`
}

// about is the message that a notification speaks of.
type about struct {
	Conv string `json:"conv"`
	Seq  int64  `json:"seq"`
}

// attempt is one row of a task's journal.
type attempt struct {
	N             int        `json:"n"`
	Action        string     `json:"action"`
	Worker        string     `json:"worker"`
	StartedAt     time.Time  `json:"started_at"`
	FinishedAt    *time.Time `json:"finished_at"`
	Outcome       string     `json:"outcome"`
	Detail        string     `json:"detail"`
	ProviderMsgID string     `json:"provider_msg_id"`
	LateOutcome   string     `json:"late_outcome"`
	LateDetail    string     `json:"late_detail"`
	LateAt        *time.Time `json:"late_at"`
}

// contract is what a channel's provider promises.
type contract struct {
	Source   string         `json:"source"`
	Renderer string         `json:"renderer"`
	Key      *keyContract   `json:"key"`
	Query    *queryContract `json:"query"`
	Replace  bool           `json:"replace"`
	Safe     []string       `json:"safe_statuses"`
	Receipts bool           `json:"receipts"`
}

// keyContract says how a provider recognises a repeated request.
type keyContract struct {
	Carrier      string `json:"carrier"`
	WindowS      int64  `json:"window_s"`
	SameBytes    bool   `json:"same_bytes"`
	StoredErrors bool   `json:"stored_errors"`
}

// queryContract says how it can be asked.
type queryContract struct {
	SettleMS      int64 `json:"settle_ms"`
	HorizonS      int64 `json:"horizon_s"`
	AbsenceProves bool  `json:"absence_proves"`
}

// Pick names a task together with the attempt count that its reader saw.
func (t task) Pick() string { return fmt.Sprintf("%s.%d", t.ID, t.AttemptCount) }

// Place is the task's channel with its slot.
func (t task) Place() string {
	if t.Slot == "" {
		return t.Channel
	}
	return t.Channel + "/" + t.Slot
}

// Reference is how a provider knows the task: its id without dashes.
func (t task) Reference() string { return strings.ReplaceAll(t.ID, "-", "") }

// Took is how long an attempt took.
func (a attempt) Took() time.Duration {
	if a.FinishedAt == nil {
		return 0
	}
	return a.FinishedAt.Sub(a.StartedAt)
}
