// An operator in a scene: the command line and the API.

package lab_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab/proc"
)

// operator is the product's API, served by its binary in a process of its own, as persons and providers meet it.
type operator struct {
	s      *scene
	url    string
	key    string
	secret string // with which the doubles sign their receipts
	client *http.Client
}

// operator starts the API for the doubles' push and sms channels. It sends nothing.
func (s *scene) operator() *operator {
	s.Helper()
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	double := func(mode string) map[string]any {
		return map[string]any{"double": map[string]any{"url": s.doubles.URL(), "mode": mode, "secrets": []string{secret}}}
	}
	o := &operator{s: s, secret: secret, client: &http.Client{Transport: &http.Transport{}, Timeout: soon}}
	s.Cleanup(o.client.CloseIdleConnections)
	o.url = s.server("api", map[string]any{push: double(push), sms: double(sms)})
	o.key = strings.TrimSpace(s.tidings("key", "create", "lab", "--scopes", "review"))
	return o
}

// server starts the product's server in a role, with channels, and returns its URL.
func (s *scene) server(role string, channels map[string]any) string {
	s.Helper()
	// JSON is YAML, too.
	text, err := json.Marshal(map[string]any{"channels": channels})
	s.Must("write the server's configuration", err)
	file := filepath.Join(s.TempDir(), "tidings-"+role+".yaml")
	s.Must("write the server's configuration", os.WriteFile(file, text, 0o600))
	p := proc.Start(s, "tidings serve "+role, s.command("serve", "--config", file, "--roles", role, "--listen", "127.0.0.1:0"))
	var ready struct{ URL string }
	s.Must("read where the server serves", json.Unmarshal([]byte(p.Await(`"msg":"serving"`, soon)), &ready))
	return ready.URL
}

// command is the product's binary, on the scene's database.
func (s *scene) command(args ...string) *exec.Cmd {
	s.Helper()
	cmd := exec.Command(program(s.T, "../cmd/tidings"), args...)
	cmd.Env = append(os.Environ(), "TIDINGS_DATABASE_URL="+s.url())
	return cmd
}

// tidings runs the product's binary and returns what it prints.
func (s *scene) tidings(args ...string) string {
	s.Helper()
	out, err := s.command(args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	s.Must("run tidings "+strings.Join(args, " "), err)
	return string(out)
}

// page is the attempt count that a person sees of a task.
func (o *operator) page(task tidings.UUID) int {
	o.s.Helper()
	var page struct {
		AttemptCount *int `json:"attempt_count"`
	}
	code, err := o.ask(http.MethodGet, "/v1/reviews/"+task.String(), nil, &page)
	o.s.Must("look at a task", err)
	if code != "" || page.AttemptCount == nil {
		o.s.Fatalf("look at a task: %s, without an attempt count: %v", code, page.AttemptCount == nil)
	}
	return *page.AttemptCount
}

// resolve says a person's word about a task whose attempt count they saw; the code is empty when it was carried out. It can
// be called from any goroutine.
func (o *operator) resolve(task tidings.UUID, word string, attemptCount int) (tidings.Code, error) {
	return o.ask(http.MethodPost, "/v1/reviews/"+task.String(), map[string]any{"state": word, "attempt_count": attemptCount, "note": "looked it up"}, nil)
}

// ask makes a request to the API and returns the code of its refusal.
func (o *operator) ask(method, path string, in, out any) (tidings.Code, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(o.s.ctx, method, o.url+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+o.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var problem struct{ Code tidings.Code }
	switch {
	case resp.StatusCode == http.StatusOK && out != nil:
		return "", json.Unmarshal(answer, out)
	case resp.StatusCode == http.StatusOK:
		return "", nil
	case json.Unmarshal(answer, &problem) != nil || problem.Code == "":
		return "", fmt.Errorf("%s %s: status %d without a problem document", method, path, resp.StatusCode)
	}
	return problem.Code, nil
}

// reported is the API's answer to a receipt.
type reported struct{ Matched, Settled, Contradictions, Unmatched, Replayed int }

// receipt lets the double of a mode report on a task's message, signed, to the API. It can be called from any goroutine.
func (o *operator) receipt(mode string, task tidings.UUID, status string, change ...func(*channeltest.ReceiptOrder)) (r reported, err error) {
	order := channeltest.ReceiptOrder{URL: o.url + "/v1/channels/" + mode + "/receipts", Secret: o.secret, Mode: mode, Ref: task.Key(), Status: status}
	for _, c := range change {
		c(&order)
	}
	answer, err := o.s.doubles.Receipt(order)
	if err != nil {
		return r, err
	}
	if answer.Status != http.StatusOK {
		return r, fmt.Errorf("the receipt was answered with status %d: %s", answer.Status, answer.Body)
	}
	return r, json.Unmarshal([]byte(answer.Body), &r)
}
