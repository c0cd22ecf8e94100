// The operation that takes providers' receipts.

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/internal/store"
)

// receiptIn is a provider's report, as it came: its channel verifies the bytes.
type receiptIn struct {
	Channel string `path:"channel" maxLength:"128"`
	RawBody []byte
	header  http.Header
}

// Resolve takes all headers: which ones hold the signature is the channel's knowledge.
func (in *receiptIn) Resolve(ctx huma.Context) []error {
	in.header = http.Header{}
	ctx.EachHeader(in.header.Add)
	return nil
}

func (a *API) receipts() {
	type receiptsOut struct {
		Body struct {
			Matched        int `json:"matched" doc:"Found their task."`
			Settled        int `json:"settled" doc:"Tasks that became SENT."`
			Contradictions int `json:"contradictions" doc:"Their task is FAILED or SUPPRESSED, and stays so."`
			Unmatched      int `json:"unmatched" doc:"Found no task so far; looked at again later."`
			Replayed       int `json:"replayed" doc:"Were known."`
		}
	}
	register(a, huma.Operation{OperationID: "receive-receipts", Method: http.MethodPost, Path: "/v1/channels/{channel}/receipts", Tags: []string{"channels"},
		Summary:     "Take a provider's own report",
		Description: "Authenticated by the provider's signature, which the channel verifies; no API key. Any report on a message, a negative one too, proves that it was accepted."},
		nil, func(ctx context.Context, in *receiptIn) (*receiptsOut, error) {
			parser, ok := a.channels[in.Channel].(channel.ReceiptParser)
			if !ok {
				return nil, tidings.Errorf(tidings.NotFound, "there is no such channel, or its provider does not report")
			}
			reports, err := parser.ParseReceipt(in.header, in.RawBody)
			if err != nil {
				return nil, err
			}
			var receipts []store.Receipt
			for _, r := range reports {
				receipt := store.Receipt{ProviderMsgID: r.ProviderMsgID, Reference: r.Reference, Status: r.Status, Detail: r.Detail}
				if !r.At.IsZero() {
					receipt.At = &r.At
				}
				receipts = append(receipts, receipt)
			}
			result, err := a.store.RecordReceipts(ctx, in.Channel, receipts)
			if err != nil {
				return nil, err
			}
			if result.Contradictions > 0 {
				a.log.WarnContext(ctx, "a receipt contradicts a task that was not sent", "channel", in.Channel, "receipts", result.Contradictions)
			}
			for kind, n := range map[string]int{"settled": result.Settled, "contradiction": result.Contradictions, "unmatched": result.Unmatched, "replayed": result.Replayed} {
				a.reports.WithLabelValues(in.Channel, kind).Add(float64(n))
			}
			o := &receiptsOut{}
			o.Body.Matched, o.Body.Settled, o.Body.Contradictions = result.Matched, result.Settled, result.Contradictions
			o.Body.Unmatched, o.Body.Replayed = result.Unmatched, result.Replayed
			return o, nil
		})
}
