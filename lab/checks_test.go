// Runs the registered checks.

package lab_test

import (
	"os"
	"testing"

	"github.com/tidings-project/tidings/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// TestChecks runs the checks. Run one with -run '/^33-T1$', a family with -run '/^33-'.
func TestChecks(t *testing.T) { lab.RunChecks(t) }
