// The directory itself.

package outside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Ready says whether the directory can be written. It is made if only it itself is not there, which made tells: a path of which more is
// missing is misspelt, or not mounted.
func Ready(dir string) (made bool, err error) {
	if err = os.Mkdir(dir, 0o700); err == nil {
		return true, syncDir(filepath.Dir(dir))
	}
	info, statErr := os.Stat(dir)
	switch {
	case errors.Is(statErr, os.ErrNotExist):
		return false, err // of making it
	case statErr != nil:
		return false, statErr
	case !info.IsDir():
		return false, fmt.Errorf("%s is no directory", dir)
	}
	probe, err := os.CreateTemp(dir, ".probe.*")
	if err != nil {
		return false, err
	}
	return false, errors.Join(probe.Close(), os.Remove(probe.Name()))
}
