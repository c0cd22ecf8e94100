// Delivery receipts by signed webhooks.

package webhook

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
)

// Receipt is the body of a report that a receiver sends back: JSON, signed like the webhook itself.
type Receipt struct {
	ProviderMsgID string    `json:"provider_msg_id,omitempty"`
	Reference     string    `json:"reference,omitempty"` // the webhook-id
	Status        string    `json:"status"`
	At            time.Time `json:"at,omitzero"`
	Detail        string    `json:"detail,omitempty"`
}

// ParseReceipt verifies and reads a signed Receipt. A bad signature is an error with the code Unauthenticated, anything
// else that is wrong InvalidArgument.
func ParseReceipt(header http.Header, secrets []Secret, now time.Time, body []byte) ([]channel.Receipt, error) {
	if err := Verify(header, secrets, now, body); err != nil {
		return nil, err
	}
	var r Receipt
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the receipt is not JSON of the expected shape")
	}
	if r.Status == "" || r.ProviderMsgID == "" && r.Reference == "" {
		return nil, tidings.Errorf(tidings.InvalidArgument, "the receipt has no status, or neither provider_msg_id nor reference")
	}
	return []channel.Receipt{{ProviderMsgID: r.ProviderMsgID, Reference: r.Reference, Status: r.Status, At: r.At, Detail: r.Detail}}, nil
}
