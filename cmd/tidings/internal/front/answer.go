// How requests are read and answered: JSON, errors with the codes of the API.

package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tidings-project/tidings"
)

// comeBack is what clients are told to wait for what is not there just now.
const comeBack = time.Second

// bodyMost is how long the body of a request may be.
const bodyMost = 64 << 10

// read reads the body of a request, which has to be JSON: no form of another page can send that.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	if r.Header.Get("Content-Type") != "application/json" {
		return tidings.Errorf(tidings.InvalidArgument, "the Content-Type has to be application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMost))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return tidings.Errorf(tidings.InvalidArgument, "read the body: %w", err)
	}
	return nil
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer is gone: there is nobody to tell
}

// refuse writes an error.
func refuse(w http.ResponseWriter, err error) {
	code := tidings.ErrorCode(err)
	text := err.Error()
	var coded *tidings.Error
	if errors.As(err, &coded) {
		text = coded.Message
		if coded.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(coded.RetryAfter.Seconds()))))
		}
	}
	answer(w, tidings.Codes[code].HTTP, map[string]any{"code": code, "message": text})
}

func notFound(format string, args ...any) error {
	return tidings.Errorf(tidings.NotFound, format, args...)
}

// unavailable is the error of what can be had later.
func unavailable(format string, args ...any) error {
	return &tidings.Error{Code: tidings.Unavailable, Message: fmt.Sprintf(format, args...), RetryAfter: comeBack}
}
