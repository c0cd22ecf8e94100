// Directs doubles in this process or another: scripts, logs and counts over HTTP.

package channeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Control directs doubles that run in this process or in another one.
type Control struct {
	url    string
	client *http.Client
}

// Connect makes a Control for the doubles at url. It makes no request.
func Connect(url string) *Control {
	return &Control{url: url, client: &http.Client{Transport: &http.Transport{}, Timeout: 15 * time.Second}}
}

// URL is the base that Push, SMS and Plain take.
func (c *Control) URL() string { return c.url }

// Close gives up the idle connections.
func (c *Control) Close() { c.client.CloseIdleConnections() }

// Script adds a script.
func (c *Control) Script(sc Script) error { return c.post("/script", sc, nil) }

// Next scripts the next sends of a mode ("" for every mode), whoever they are for.
func (c *Control) Next(mode string, steps ...Step) error {
	return c.Script(Script{Mode: mode, Steps: steps})
}

// NextQuery scripts the next queries.
func (c *Control) NextQuery(steps ...Step) error {
	return c.Script(Script{Mode: ModeSMS, Kind: KindQuery, Steps: steps})
}

// Reset forgets scripts, log, counts, keys and acceptances.
func (c *Control) Reset() error { return c.post("/reset", struct{}{}, nil) }

// Settings changes how long push remembers a key (0: for ever) and how long an acceptance stays hidden from a query.
func (c *Control) Settings(keyRetention, visibleAfter time.Duration) error {
	return c.post("/settings", settings{keyRetention.Milliseconds(), visibleAfter.Milliseconds()}, nil)
}

// Log reads the entries after number after, at most 10,000. Empty mode and ref select every entry.
func (c *Control) Log(mode, ref string, after int64) ([]Entry, error) {
	var out []Entry
	q := url.Values{"mode": {mode}, "ref": {ref}, "after": {strconv.FormatInt(after, 10)}}
	return out, c.do(http.MethodGet, "/log?"+q.Encode(), nil, &out)
}

// Counts reads the totals of a mode and a reference; empty ones select all.
func (c *Control) Counts(mode, ref string) (Counts, error) {
	var out Counts
	q := url.Values{"mode": {mode}, "ref": {ref}}
	return out, c.do(http.MethodGet, "/counts?"+q.Encode(), nil, &out)
}

// Receipt lets a double report on a message.
func (c *Control) Receipt(o ReceiptOrder) (ReceiptAnswer, error) {
	var out ReceiptAnswer
	return out, c.post("/receipt", o, &out)
}

// WaitFor waits until the counts of a mode and reference satisfy done.
func (c *Control) WaitFor(ctx context.Context, mode, ref string, done func(Counts) bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		counts, err := c.Counts(mode, ref)
		if err != nil {
			return err
		}
		if done(counts) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the doubles, counts %+v: %w", counts, ctx.Err())
		case <-tick.C:
		}
	}
}

func (c *Control) post(path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.do(http.MethodPost, path, body, out)
}

func (c *Control) do(method, path string, body []byte, out any) error {
	req, err := http.NewRequest(method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the doubles: %w", err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the doubles: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask the doubles: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the doubles refuse %s %s: status %d: %s", method, path, resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
