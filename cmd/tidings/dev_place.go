// What dev keeps in its directory from one run to the next, and how it writes the commands that it prints.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
)

// outbox is the file that the printed chat of a user keeps its messages in.
func (c *devCmd) outbox(user string) string { return filepath.Join(c.Dir, user+".outbox") }

// apiPort is the port of the API. One that replaces another is written down, with the one that it replaces, and is used again: those
// who are connected come back to it.
//
// It lies below the ports that systems give to outgoing connections: a client that tries to come back could get such a port as its own.
func (c *devCmd) apiPort(box *sandbox.Sandbox) (int, error) {
	file := filepath.Join(c.Dir, "api-port")
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read the port of the API: %w", err)
	}
	var wanted, kept int
	if n, _ := fmt.Sscan(string(text), &wanted, &kept); n == 2 && wanted == c.Port && isFree(kept) {
		if wanted != 0 {
			box.Notes = append(box.Notes, fmt.Sprintf("the API keeps port %d, which it got when %d was taken", kept, wanted))
		}
		return kept, nil
	}
	if c.Port != 0 && isFree(c.Port) {
		return c.Port, nil
	}
	port := 20_000 + rand.IntN(10_000)
	for tries := 0; tries < 50 && !isFree(port); tries++ {
		port = 20_000 + rand.IntN(10_000)
	}
	if c.Port != 0 {
		box.Notes = append(box.Notes, fmt.Sprintf("port %d is taken: there is another one for the API", c.Port))
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d %d\n", c.Port, port), 0o600); err != nil {
		return 0, fmt.Errorf("keep the port of the API: %w", err)
	}
	return port, nil
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// invocation is how a shell in this directory calls this program again.
func invocation() string {
	called := os.Args[0]
	if exe, err := os.Executable(); err == nil && strings.Contains(filepath.ToSlash(exe), "/go-build") { // of go run, which deletes it
		if _, err := os.Stat(filepath.Join("cmd", "tidings", "main.go")); err == nil {
			return "go run ./cmd/tidings"
		}
	}
	dir, err := os.Getwd()
	if err != nil || !filepath.IsAbs(called) {
		return called
	}
	if near, err := filepath.Rel(dir, called); err == nil && filepath.IsLocal(near) {
		if !strings.ContainsRune(near, filepath.Separator) {
			near = "." + string(filepath.Separator) + near
		}
		return near
	}
	return called
}
