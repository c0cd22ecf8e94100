// Channels: how they are doing, what they promise, pause and resume.

package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// channel is a transport with its contract and its health.
type channel struct {
	Name     string    `json:"name"`
	Contract *contract `json:"contract"`
	Pause    *struct {
		Until  *time.Time `json:"until"`
		Reason string     `json:"reason"`
		By     string     `json:"by"`
		At     time.Time  `json:"at"`
	} `json:"pause"`
	Health struct {
		Due       int        `json:"due"`
		OldestDue *time.Time `json:"oldest_due"`
		InFlight  int        `json:"in_flight"`
		Review    int        `json:"review"`
	} `json:"health"`
}

func readChannels(v *visit) ([]channel, error) {
	var out struct {
		Channels []channel `json:"channels"`
	}
	return out.Channels, v.get("/v1/channels", nil, &out)
}

func listChannels(v *visit) error {
	all, err := readChannels(v)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "channels", "Channels", "channels", all)
	return nil
}

// channelPage is one channel, and the form to pause it.
type channelPage struct {
	channel
	Problem *refusal
	Reason  string
	Minutes string
}

func showChannel(v *visit) error { return channelWith(v, http.StatusOK, channelPage{}) }

// channelWith shows the channel that is named, as it is now.
func channelWith(v *visit, status int, p channelPage) error {
	all, err := readChannels(v)
	if err != nil {
		return err
	}
	name := v.value("name")
	for _, c := range all {
		if c.Name == name {
			p.channel = c
			v.show(status, "channel", "Channel "+name, "channels", p)
			return nil
		}
	}
	return &refusal{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "This process does not have such a channel, nobody has paused it, and no task is scheduled on it."}
}

// pauseChannel pauses for some minutes by this process's clock, or until somebody resumes.
func pauseChannel(v *visit) error {
	in := struct {
		Reason string     `json:"reason"`
		Until  *time.Time `json:"until,omitempty"`
	}{Reason: v.value("reason")}
	var err error
	if minutes := v.value("minutes"); minutes != "" {
		n, wrong := strconv.Atoi(minutes)
		if wrong != nil || n < 1 || n > 366*24*60 {
			err = invalid("The number of minutes is not one from 1 to a year's.")
		}
		until := time.Now().UTC().Add(time.Duration(n) * time.Minute).Truncate(time.Second)
		in.Until = &until
	}
	if err == nil {
		err = v.post("/v1/channels/"+url.PathEscape(v.value("name"))+"/pause", in, nil)
	}
	if err == nil {
		v.done(link(home+"/channel", url.Values{"name": {v.value("name")}}), "The channel %s is paused.", v.value("name"))
		return nil
	}
	problem := refusalOf(err)
	if problem.Status != http.StatusBadRequest {
		return err
	}
	return channelWith(v, problem.Status, channelPage{Problem: problem, Reason: in.Reason, Minutes: v.value("minutes")})
}

func resumeChannel(v *visit) error {
	if err := v.post("/v1/channels/"+url.PathEscape(v.value("name"))+"/resume", struct{}{}, nil); err != nil {
		return err
	}
	v.done(link(home+"/channel", url.Values{"name": {v.value("name")}}), "The channel %s goes on.", v.value("name"))
	return nil
}
