// The command channel: contracts, health, pause and resume.

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tidings-project/tidings/internal/api"
)

type channelCmd struct {
	List   channelListCmd   `cmd:"" default:"withargs" help:"What each channel promises and how it is doing."`
	Pause  channelPauseCmd  `cmd:"" help:"Claim nothing on a channel, in any worker."`
	Resume channelResumeCmd `cmd:"" help:"End a pause."`
}

type channelListCmd struct {
	remote
	asJSON
}

func (c *channelListCmd) Run(e *env) error {
	var answer struct {
		Channels []api.Channel `json:"channels"`
	}
	if err := c.call(e, http.MethodGet, "/v1/channels", nil, &answer); err != nil {
		return err
	}
	return c.print(e, answer, func() {
		table(e.stdout, func(row func(...any)) {
			row("CHANNEL", "AFTER AN UNKNOWN OUTCOME", "DUE", "OLDEST", "IN FLIGHT", "REVIEW", "PAUSED")
			for _, ch := range answer.Channels {
				paused := ""
				if ch.Pause != nil {
					paused = fmt.Sprintf("%s (%s)", ch.Pause.Reason, ch.Pause.By)
				}
				row(ch.Name, afterUnknown(ch.Contract), most(ch.Health.Due), ago(ch.Health.OldestDue), most(ch.Health.InFlight), most(ch.Health.Review), paused)
			}
		})
	})
}

// most is a count of a channel's health: they stop at 10001, which says "more".
func most(n int) string {
	if n > 10_000 {
		return ">10000"
	}
	return strconv.Itoa(n)
}

// afterUnknown is what the contract leaves when an answer is lost.
func afterUnknown(c *api.Contract) string {
	switch {
	case c == nil:
		return "not served here"
	case c.Key != nil:
		return fmt.Sprintf("same key for %v", time.Duration(c.Key.WindowS)*time.Second)
	case c.Query != nil:
		return fmt.Sprintf("query after %v", time.Duration(c.Query.SettleMS)*time.Millisecond)
	}
	return "a person"
}

type channelPauseCmd struct {
	remote
	Channel string        `arg:""`
	Reason  string        `required:"" help:"Why."`
	For     time.Duration `help:"How long. Default: until it is resumed."`
}

func (c *channelPauseCmd) Run(e *env) error {
	in := map[string]any{"reason": c.Reason}
	if c.For > 0 {
		in["until"] = time.Now().Add(c.For)
	}
	return c.say(e, c.Channel, "pause", in, "is paused")
}

type channelResumeCmd struct {
	remote
	Channel string `arg:""`
}

func (c *channelResumeCmd) Run(e *env) error {
	return c.say(e, c.Channel, "resume", nil, "is not paused (any more)")
}

// say asks for a verb on a channel and prints what holds then.
func (r remote) say(e *env, channel, verb string, in any, holds string) error {
	var answer struct {
		Note string `json:"note"`
	}
	if err := r.call(e, http.MethodPost, "/v1/channels/"+url.PathEscape(channel)+"/"+verb, in, &answer); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s %s\n", channel, holds)
	if answer.Note != "" {
		fmt.Fprintln(e.stdout, "note:", answer.Note)
	}
	return nil
}
