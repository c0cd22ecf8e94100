// Locks the file of an outbox: where there is flock.

//go:build unix && !aix && !solaris

package client

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockFile takes a lock that no other process has; closing it or the end of the process gives it back.
func lockFile(path string) (io.Closer, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process uses it")
		}
		return nil, err
	}
	return file, nil
}

// syncDir makes a rename in dir last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
