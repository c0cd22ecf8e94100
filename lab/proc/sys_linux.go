// What differs on Linux.

package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// groupLeader makes a child the leader of its own process group, and has the kernel kill it when the thread that
// started it ends: also when this process is killed, nothing is left.
func groupLeader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopped tells whether every thread of the process is stopped (state T in proc(5), the first field after the
// command's name in parentheses).
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil || !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")) {
			return false
		}
	}
	return true
}
