// No goroutine outlives the tests.

package client_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }
