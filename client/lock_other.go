// Locks the file of an outbox: where there is no flock.

//go:build !unix || aix || solaris

package client

import (
	"errors"
	"io"
)

// lockFile refuses: without a lock two processes could send from one outbox.
func lockFile(string) (io.Closer, error) {
	return nil, errors.New("an outbox in a file is not supported on this system; leave Config.Outbox empty")
}

func syncDir(string) error { return errors.ErrUnsupported }
