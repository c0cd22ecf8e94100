// The receipts that doubles send.

package channeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tidings-project/tidings/channel/webhook"
)

// ReceiptOrder asks a double to report on a message.
type ReceiptOrder struct {
	URL    string `json:"url"` // where the report is posted
	Secret string `json:"secret"`
	Mode   string `json:"mode"`
	Ref    string `json:"ref"`
	Status string `json:"status"` // "delivered", "failed", … : the double's word
	Detail string `json:"detail,omitempty"`

	ID        string `json:"id,omitempty"`         // the double's id; "": of the first acceptance of Ref, if any
	WithoutID bool   `json:"without_id,omitempty"` // report the reference only
	OnlyID    bool   `json:"only_id,omitempty"`    // report the id only
}

// ReceiptAnswer is what the receiver of a report answered.
type ReceiptAnswer struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

func (s *Server) receipt(body []byte, r *http.Request) (any, error) {
	var o ReceiptOrder
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	secret, err := webhook.ParseSecret(o.Secret)
	if err != nil {
		return nil, err
	}
	if ids := s.ledger.accepted(o.Mode, o.Ref); o.ID == "" && len(ids) > 0 {
		o.ID = ids[0]
	}
	report := webhook.Receipt{ProviderMsgID: o.ID, Reference: o.Ref, Status: o.Status, At: time.Now().UTC(), Detail: o.Detail}
	if o.WithoutID {
		report.ProviderMsgID = ""
	}
	if o.OnlyID {
		report.Reference = ""
	}
	text, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	webhook.Sign(req.Header, []webhook.Secret{secret}, fmt.Sprintf("receipt-%s-%d", o.Ref, time.Now().UnixNano()), time.Now(), text)
	resp, err := s.Control.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("post the receipt: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxRequest))
	return ReceiptAnswer{Status: resp.StatusCode, Body: string(answer)}, err
}
