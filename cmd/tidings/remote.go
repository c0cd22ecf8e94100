// How commands call the API.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
)

// remote are the flags of the commands that work through the HTTP API.
type remote struct {
	URL      string `name:"url" env:"TIDINGS_URL" required:"" placeholder:"URL" help:"Where the API is served."`
	Key      string `name:"key" env:"TIDINGS_KEY" required:"" placeholder:"KEY" help:"API key."`
	Operator string `name:"operator" env:"TIDINGS_OPERATOR" placeholder:"NAME" help:"Who you are, for the journal."`
}

var httpClient = &http.Client{Timeout: time.Minute}

// call makes one request. A refusal is an error with its code; a lost answer to anything but a GET is OUTCOME_UNKNOWN.
func (r remote) call(e *env, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(e.ctx, method, strings.TrimSuffix(r.URL, "/")+path, body)
	if err != nil {
		return usage(errors.New("--url is not a URL"))
	}
	req.Header.Set("Authorization", "Bearer "+r.Key)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Operator != "" {
		req.Header.Set(api.OperatorHeader, r.Operator)
	}
	lost := tidings.OutcomeUnknown
	if method == http.MethodGet {
		lost = tidings.Unavailable
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			lost = tidings.Unavailable // nothing was asked
		}
		var named *url.Error
		if errors.As(err, &named) {
			err = named.Err // without the URL again
		}
		return tidings.Errorf(lost, "ask %s: %w", r.URL, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return tidings.Errorf(lost, "read the answer of %s: %w", r.URL, err)
	}
	if resp.StatusCode >= 300 {
		var p api.Problem
		if json.Unmarshal(text, &p) != nil || p.Code == "" {
			return tidings.Errorf(lost, "%s answers with status %d and no problem document", r.URL, resp.StatusCode)
		}
		return &tidings.Error{Code: p.Code, Message: p.Detail}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return tidings.Errorf(lost, "read the answer of %s: %w", r.URL, err)
	}
	return nil
}
