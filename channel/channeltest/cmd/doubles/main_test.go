// Tests of the doubles as a process.

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidings-project/tidings/channel/channeltest"
)

func TestDoublesAsAProcess(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "doubles")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-key-retention", "1h")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	doubles := channeltest.Connect(strings.TrimSpace(line))
	if counts, err := doubles.Counts("", ""); err != nil || counts != (channeltest.Counts{}) {
		t.Errorf("%+v, %v", counts, err)
	}
	doubles.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
