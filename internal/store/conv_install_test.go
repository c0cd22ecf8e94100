// Tests of the installations of a device.

package store_test

import (
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
)

// Installs that act without a connection and installs that say hello are counted together.
func TestInstall(t *testing.T) {
	s := store.New(pgtest.New(t))
	install := func(name string) (int64, tidings.Code) {
		no, err := s.Install(t.Context(), "u-ana", "d-1", name)
		return no, tidings.ErrorCode(err)
	}
	hello := func(name string) (int64, tidings.Code) {
		h, err := s.Hello(t.Context(), "u-ana", "d-1", name, "g-1", tidings.UUID{1})
		return h.InstallNo, tidings.ErrorCode(err)
	}
	for i, c := range []struct {
		do   func(string) (int64, tidings.Code)
		name string
		no   int64
		code tidings.Code
	}{
		{install, "i-1", 1, ""}, {install, "i-1", 1, ""}, {hello, "i-1", 1, ""},
		{install, "i-2", 2, ""}, {install, "i-1", 0, tidings.InstallReplaced}, {hello, "i-1", 0, tidings.InstallReplaced},
		{hello, "i-3", 3, ""}, {install, "i-3", 3, ""}, {install, "i-2", 0, tidings.InstallReplaced},
		{install, "", 0, tidings.InvalidArgument}, {install, "a/b", 0, tidings.InvalidArgument},
	} {
		if no, code := c.do(c.name); no != c.no || code != c.code {
			t.Errorf("step %d: the install %q has the number %d and the code %q, not %d and %q", i, c.name, no, code, c.no, c.code)
		}
	}
}
