// What is asked of the system about processes: where there is no /proc.

//go:build unix && !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// groupLeader makes a child the leader of its own process group.
func groupLeader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stopped tells whether the process is stopped (state T of ps).
func stopped(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
}
