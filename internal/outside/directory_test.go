// Tests of the directory outside.

package outside_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidings-project/tidings/internal/outside"
)

func TestReady(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outside")
	for _, made := range []bool{true, false} {
		if got, err := outside.Ready(dir); err != nil || got != made {
			t.Errorf("made %t, %v; want %t", got, err, made)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "x"), filepath.Join(dir, "not", "there")} {
		if _, err := outside.Ready(bad); err == nil {
			t.Errorf("%s is ready", bad)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "not")); !os.IsNotExist(err) {
		t.Errorf("a parent was made: %v", err)
	}
}
