// The first page: how things stand.

package console

import (
	"net/http"
	"time"
)

// overviewPage is how things stand.
type overviewPage struct {
	Version         string     `json:"version"`
	Reviews         int        `json:"reviews"`
	ReviewsOldestAt *time.Time `json:"reviews_oldest_at"`
	Channels        int        `json:"channels"`
	Paused          int        `json:"paused"`
	Gateways        int        `json:"gateways"`
	Lineage         struct {
		Generation int64      `json:"generation"`
		Timeline   int64      `json:"timeline"`
		RecordedAt *time.Time `json:"recorded_at"`
	} `json:"lineage"`
}

func overview(v *visit) error {
	var p overviewPage
	if err := v.get("/v1/operator/overview", nil, &p); err != nil {
		return err
	}
	v.show(http.StatusOK, "overview", "Overview", "overview", p)
	return nil
}
