// A running dev as its page sees it, for the tests of that.

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/client"
)

// devFront is a running dev as its page sees it.
type devFront struct {
	t    *testing.T
	p    *program
	url  string
	talk chatStage // devices that connect straight; through opens one on a line
}

// devSight is what these tests look at of GET /dev/state.
type devSight struct {
	Conv   string
	People []struct {
		User    string
		Devices []struct{ Device, Line string }
	}
	Lines    map[string]devLine
	Gateways []devGateway
	Backup   *struct{ At time.Time }
	Busy     string
	Key      string
	Log      []struct{ Text string }
}

type devLine struct {
	Online  bool
	Gateway string
	Shuffle bool
	Lose    bool `json:"lose_reply"`
}

type devGateway struct {
	Name, State string
	PID         int
}

func startFront(t *testing.T) *devFront {
	t.Helper()
	return startFrontIn(t, devDir(t))
}

func startFrontIn(t *testing.T, dir string) *devFront {
	t.Helper()
	p := start(t, dir, "dev", "--port", "0", "--smtp-port", "0", "--receiver-port", "0", "--doubles-port", "0")
	text := p.says("open http://", "Ctrl-C")
	_, text, _ = strings.Cut(text, "open ")
	url, _, _ := strings.Cut(text, "/ ")
	secret, err := os.ReadFile(filepath.Join(dir, ".tidings", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	f := &devFront{t: t, p: p, url: url, talk: chatStage{secret: string(secret)}}
	t.Cleanup(func() {
		if err := f.talk.close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return f
}

// ask makes one request; change may change it.
func (f *devFront) ask(method, path, body string, change ...func(*http.Request)) (status int, header http.Header, text string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(req)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	var all bytes.Buffer
	if _, err := io.Copy(&all, answer.Body); err != nil {
		f.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, all.String()
}

// order makes a POST that has to succeed.
func (f *devFront) order(path, body string) string {
	f.t.Helper()
	status, _, text := f.ask(http.MethodPost, path, body)
	if status != http.StatusOK {
		f.t.Fatalf("POST %s %s is answered with %d: %s", path, body, status, text)
	}
	return text
}

func (f *devFront) state() devSight {
	f.t.Helper()
	_, _, text := f.ask(http.MethodGet, "/dev/state", "")
	return decode[devSight](f.t, text)
}

// until waits until the state is as it should be.
func (f *devFront) until(what string, is func(devSight) bool) (s devSight) {
	f.t.Helper()
	await(f.t, what, func() bool { s = f.state(); return is(s) }, func() string { return fmt.Sprintf("%+v\n%s", s, f.p.text()) })
	return s
}

func (f *devFront) gateway(name string) devGateway {
	f.t.Helper()
	for _, g := range f.state().Gateways {
		if g.Name == name {
			return g
		}
	}
	f.t.Fatalf("there is no gateway %s", name)
	return devGateway{}
}

// said tells whether the journal has a line with these words.
func said(words string) func(devSight) bool {
	return func(s devSight) bool {
		return slices.ContainsFunc(s.Log, func(e struct{ Text string }) bool { return strings.Contains(e.Text, words) })
	}
}

// through opens a user's device on a line.
func (f *devFront) through(user, line string) *device {
	f.t.Helper()
	f.talk.api = remote{URL: f.url + "/dev/line/" + line + "/v1/ws"}
	d, err := f.talk.open(user, line, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// say sends a message and waits until it is stored.
func (f *devFront) say(d *device, cmid string) client.Sent {
	f.t.Helper()
	sent, err := stored(f.soon(), d, devConv, cmid, "this is "+cmid)
	if err != nil {
		f.t.Fatalf("send %s: %v\n%s", cmid, err, f.p.text())
	}
	return sent
}

// hear waits until a device has the event at seq.
func (f *devFront) hear(d *device, seq int64) {
	f.t.Helper()
	if err := d.hears(f.soon(), "an event", arrived(seq)); err != nil {
		f.t.Fatalf("%s, event %d: %v", d.user, seq, err)
	}
}

// soon is a patience for what takes a moment.
func (f *devFront) soon() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	f.t.Cleanup(cancel)
	return ctx
}

// log is the conversation's log as the API tells it: the cmids of the messages.
func (f *devFront) log() (epoch int64, cmids []string) {
	f.t.Helper()
	_, _, text := f.ask(http.MethodGet, "/v1/conversations/"+devConv+"/events?after=0&limit=500", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+f.state().Key)
		r.Header.Set("Tidings-User", devUser)
	})
	page := decode[struct {
		Epoch  int64
		Events []tidings.Event
	}](f.t, text)
	for _, e := range page.Events {
		if e.Kind == "msg" {
			cmids = append(cmids, e.Cmid)
		}
	}
	return page.Epoch, cmids
}
