// The operations for operators: who they are, how it is doing, gateways, routes, the acceptance report.

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/store"
)

// operatorPath begins the paths for operators. They take keys only, no user's token.
const operatorPath = "/v1/operator/"

// maxReport is the greatest size of an acceptance report, in bytes.
const maxReport = 8 << 20

// operatorOp is an operation for operators. All of them only read.
func operatorOp(path, id, summary, description string) huma.Operation {
	return huma.Operation{OperationID: id, Method: http.MethodGet, Path: operatorPath + path, Tags: []string{"operator"}, Summary: summary, Description: description}
}

// OperatorKey is the key that a request carries.
type OperatorKey struct {
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
}

// OperatorOverview is how an installation is doing.
type OperatorOverview struct {
	Version         string     `json:"version" doc:"Of the process that answers."`
	Reviews         int        `json:"reviews" doc:"Tasks that wait for a person. The count stops at 10001, which means more than 10000."`
	ReviewsOldestAt *time.Time `json:"reviews_oldest_at,omitempty" doc:"The oldest doubt of them."`
	Channels        int        `json:"channels" doc:"As GET /v1/channels lists them."`
	Paused          int        `json:"paused" doc:"Channels that are paused."`
	Gateways        int        `json:"gateways" doc:"That are alive."`
	Lineage         struct {
		Generation int64     `json:"generation"`
		Timeline   int64     `json:"timeline"`
		RecordedAt time.Time `json:"recorded_at"`
	} `json:"lineage" doc:"Which PostgreSQL history this is."`
}

func (a *API) operator() {
	scopes := []string{store.ScopeOperate}

	type keyOut struct{ Body OperatorKey }
	register(a, operatorOp("key", "get-operator-key", "What the key that asks is called, and what it may do", "For any key."),
		store.Scopes, func(ctx context.Context, _ *struct{}) (*keyOut, error) {
			key := grantedKey(ctx)
			return &keyOut{OperatorKey{key.Name, key.Scopes}}, nil
		})

	type overviewOut struct{ Body OperatorOverview }
	register(a, operatorOp("overview", "get-overview", "How the installation is doing", ""),
		scopes, func(ctx context.Context, _ *struct{}) (*overviewOut, error) {
			o, err := a.store.Overview(ctx)
			if err != nil {
				return nil, err
			}
			channels, err := a.listChannels(ctx)
			if err != nil {
				return nil, err
			}
			out := &overviewOut{OperatorOverview{Version: a.version, Reviews: o.Reviews, ReviewsOldestAt: o.ReviewsOldestAt, Channels: len(channels), Gateways: o.Gateways}}
			for _, c := range channels {
				if c.Pause != nil {
					out.Body.Paused++
				}
			}
			out.Body.Lineage.Generation, out.Body.Lineage.Timeline, out.Body.Lineage.RecordedAt = o.Generation, o.Timeline, o.RecordedAt
			return out, nil
		})

	type gatewaysOut struct {
		Body struct {
			Gateways []store.GatewayItem `json:"gateways" doc:"By name, at most 500."`
		}
	}
	register(a, operatorOp("gateways", "list-gateways", "The gateways and how many devices are connected to each",
		"One whose lease has ended is listed for about a minute more. One that has stopped in order is not."),
		scopes, func(ctx context.Context, _ *struct{}) (*gatewaysOut, error) {
			out := &gatewaysOut{}
			var err error
			out.Body.Gateways, err = a.store.FindGateways(ctx)
			return out, err
		})

	type routesOut struct {
		Body struct {
			Devices []store.DeviceRoute `json:"devices" doc:"By device, at most 200."`
			More    bool                `json:"more" doc:"The user has more."`
		}
	}
	register(a, operatorOp("users/{user}/routes", "list-routes", "Where a user's devices are", "A user whom nobody knows has none."),
		scopes, func(ctx context.Context, in *UserPath) (*routesOut, error) {
			out := &routesOut{}
			var err error
			out.Body.Devices, out.Body.More, err = a.store.RoutesOfUser(ctx, in.User)
			return out, err
		})

	type reportOut struct{ Body json.RawMessage }
	register(a, operatorOp("report", "get-report", "The acceptance report",
		"The report.json that `tidings-lab report` wrote, as it lies in the file of the setting report-file."),
		scopes, func(context.Context, *struct{}) (*reportOut, error) {
			text, err := readReport(a.reportFile)
			return &reportOut{text}, err
		})
}

// readReport reads the acceptance report. The error is NOT_FOUND when there is none, and does not tell where it was looked for.
func readReport(path string) (json.RawMessage, error) {
	if path == "" {
		return nil, tidings.Errorf(tidings.NotFound, "there is no report: make one with `tidings-lab report` and name its report.json in the setting report-file")
	}
	info, err := os.Stat(path) // before it is opened: a pipe would be waited for
	if err == nil && !info.Mode().IsRegular() {
		return nil, tidings.Errorf(tidings.NotFound, "what the setting report-file names is no file")
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, tidings.Errorf(tidings.NotFound, "there is no report in the file of the setting report-file (any more): make one with `tidings-lab report`")
	case err != nil:
		return nil, fmt.Errorf("open the acceptance report: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxReport+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the acceptance report: %w", err)
	case len(text) > maxReport || !json.Valid(text) || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return nil, tidings.Errorf(tidings.NotFound, "the file of the setting report-file is no report: it is no JSON object, or larger than %d MiB", maxReport>>20)
	}
	return text, nil
}
