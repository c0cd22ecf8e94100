// The page of one task that a person judges by.

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/tidings-project/tidings/internal/api"
)

// printReview writes what a person needs to settle a task.
func printReview(w io.Writer, t api.Review) {
	fmt.Fprintf(w, "%s for %s on %s: %s\n\n", t.EventKey, t.User, place(t.Channel, t.Slot), state(t.Task))
	table(w, func(row func(...any)) {
		line := func(name, value string) {
			if value != "" {
				row(name, value)
			}
		}
		line("title", t.Title)
		line("body", t.Body)
		if t.About != nil {
			line("about", fmt.Sprintf("message %d of %s", t.About.Seq, t.About.Conv))
		}
		if t.Preview {
			line("body", "the beginning of that message, read from the log at each call and not stored with the task")
		}
		line("address", t.Address)
		line("task", t.ID.String())
		line("our reference at the provider", t.ID.Key())
		line("the provider's id", t.ProviderMsgID)
		line("created", when(t.CreatedAt))
		line("expires", when(t.ExpiresAt))
		if t.CancelledAt != nil {
			line("cancelled", when(*t.CancelledAt))
		}
		if t.ErasedAt != nil {
			line("erased", when(*t.ErasedAt))
		}
		line("unknown", t.Unknown)
		line("the provider", promises(t))
		line("attempt count", fmt.Sprint(t.AttemptCount))
	})
	fmt.Fprintln(w)
	table(w, func(row func(...any)) {
		row("N", "ACTION", "STARTED", "ENDED", "OUTCOME", "BY", "PROVIDER'S ID", "DETAIL")
		for _, a := range t.Attempts {
			ended := ""
			if a.FinishedAt != nil {
				ended = when(*a.FinishedAt)
			}
			row(a.N, a.Action, when(a.StartedAt), ended, a.Outcome, a.Worker, a.ProviderMsgID, a.Detail)
			if a.LateAt != nil {
				row("", "late", "", when(*a.LateAt), a.LateOutcome, "", "", a.LateDetail)
			}
		}
	})
}

// promises is what the channel's contract offers after a lost answer, as far as the API's process knows the channel.
func promises(t api.Review) string {
	c := t.Contract
	if c == nil {
		return "unknown here: the API's process does not have the channel"
	}
	says := "recognises no repeated request and cannot be asked: only you can find out"
	switch {
	case c.Key != nil:
		says = fmt.Sprintf("recognises a repeated key for %v", time.Duration(c.Key.WindowS)*time.Second)
		if t.FirstCallAt != nil {
			says += ", that is until " + when(t.FirstCallAt.Add(time.Duration(c.Key.WindowS)*time.Second))
		}
	case c.Query != nil:
		says = fmt.Sprintf("can be asked by our reference from %v after a call on", time.Duration(c.Query.SettleMS)*time.Millisecond)
		if c.Query.HorizonS > 0 {
			says += fmt.Sprintf(" and for %v", time.Duration(c.Query.HorizonS)*time.Second)
		}
		if !c.Query.AbsenceProves {
			says += "; that it finds nothing proves nothing"
		}
	}
	if c.InReceipt {
		says += "; reports by itself"
	}
	return says
}
