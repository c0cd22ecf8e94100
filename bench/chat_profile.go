// Writes the gateway's CPU profile as text.

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// profile writes where the gateway's processor time goes under the load of 64 senders.
func (m *sends) profile(p *programs, file string) error {
	var profile []byte
	var failed error
	m.during = func() {
		profile, failed = m.gateway.get(fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(*chatSeconds-1))))
	}
	got, use, err := m.load(m.gateway, "spread", 1, *chatConvs, 0)
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	raw := filepath.Join(p.dir, "cpu.pprof")
	if err := os.WriteFile(raw, profile, 0o600); err != nil {
		return err
	}
	out := fmt.Sprintf("The gateway under 64 senders: %.0f messages/s, %.1f µs of its processor time for each, %.1f of PostgreSQL's.\n", got.PerSecond, use.gateway, use.postgres)
	for _, order := range [][]string{{"-top", "-nodecount=40"}, {"-top", "-cum", "-nodecount=60"}} {
		top, err := exec.Command("go", append(append([]string{"tool", "pprof"}, order...), p.tidings, raw)...).Output()
		if err != nil {
			return fmt.Errorf("read the profile: %w", err)
		}
		kept := slices.DeleteFunc(strings.SplitAfter(string(top), "\n"), func(line string) bool { // what differs with each build and run
			return strings.HasPrefix(line, "File:") || strings.HasPrefix(line, "Build ID:") || strings.HasPrefix(line, "Time:")
		})
		out += "\n" + strings.Join(kept, "")
	}
	return os.WriteFile(file, []byte(out), 0o644)
}
