// The check 33-control-plain-client.

package lab_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID:     "33-control-plain-client",
		Expect: "one attempt in the journal, 2 requests on the wire: after a reset of a kept connection, a refused stream and a redirect",
		Run:    plainClientRepeats,
	})
}

// plainClient is the push channel as it is written without a thought of what the client does by itself.
type plainClient struct {
	url    string
	client *http.Client
}

func (c *plainClient) Contract() channel.Contract {
	return channel.Contract{Source: "the double's", Key: &channel.Key{Carrier: "header Idempotency-Key", Window: time.Hour}}
}

func (c *plainClient) Renderer() string { return "plain-client/1" }

func (c *plainClient) Send(ctx context.Context, m channel.Message) channel.Outcome {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(fmt.Sprintf(`{"ref":%q}`, m.Key)))
	if err != nil {
		return channel.Outcome{Code: tidings.NotSent, Detail: "the request cannot be formed"}
	}
	req.Header.Set("Idempotency-Key", m.Key)
	resp, err := c.client.Do(req)
	if err != nil {
		return channel.Outcome{Code: tidings.IOError, Detail: "no answer"}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return channel.Outcome{Code: tidings.Accepted, Status: resp.StatusCode}
}

// plainClientRepeats plays three scenes of 33-one-call-one-request with it.
func plainClientRepeats(t *lab.T) {
	s := newNaiveScene(t)
	for _, c := range []struct {
		protocol channeltest.Protocol
		fault    channeltest.Fault
	}{
		{channeltest.HTTP1, channeltest.Fault{Name: "reset", Reset: true}},
		{channeltest.HTTP2, channeltest.Fault{Name: "REFUSED_STREAM", Stream: "REFUSED_STREAM"}},
		{channeltest.HTTP1, channeltest.Fault{Name: "307", Status: 307, Header: http.Header{"Location": {"/elsewhere"}}}},
	} {
		what := fmt.Sprintf("%s, %s", c.protocol, c.fault.Name)
		peer := s.peer(c.protocol)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: peer.TLS(), ForceAttemptHTTP2: true}}
		t.Cleanup(client.CloseIdleConnections)
		w := s.worker("w", worker.Channel{Name: push, Timeout: 5 * time.Second, Channel: &plainClient{peer.URL(), client}})
		s.tell("first-"+slug(what), push)
		s.rounds(w, 1)
		peer.Next(c.fault)
		task := s.tell("second-"+slug(what), push)
		s.rounds(w, 1)
		t.Fault(onKept(c.fault.Name, peer))

		requests := 0
		for _, r := range peer.Requests() {
			if reference(r) == task.Key() {
				requests++
			}
		}
		attempts := s.journal(task)
		t.Equal(what+": journal", []tidings.Outcome{tidings.Accepted}, attempts)
		t.Exposed(what+": requests on the wire", len(attempts), requests)
	}
}
