// Where the lab is and with what it runs.

package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

const evidenceVar = "TIDINGS_EVIDENCE"

// Root is the directory of the module: the nearest one upwards that has a go.mod; "." when there is none.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return "."
		}
	}
}

// EvidenceDir is where evidence is written to and read from: TIDINGS_EVIDENCE, or lab/evidence in the module.
func EvidenceDir() string {
	if dir := os.Getenv(evidenceVar); dir != "" {
		return dir
	}
	return filepath.Join(Root(), "lab", "evidence")
}

// versions names what takes part in every run.
var versions = sync.OnceValue(func() map[string]string {
	return map[string]string{"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
})

// commit is the commit that the module is built from, with "-dirty" for changes on top of it.
var commit = sync.OnceValue(func() string {
	out, err := exec.Command("git", "-C", Root(), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty").Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
})

// places replaces what would tell one machine from another.
var places = sync.OnceValue(func() *strings.Replacer {
	pairs := []string{Root(), "{module}", filepath.Clean(os.TempDir()), "{tmp}"}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		pairs = append(pairs, home, "{home}")
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && host != "localhost" {
		pairs = append(pairs, host, "{host}")
	}
	return strings.NewReplacer(pairs...)
})

// clean makes a text fit for evidence: no places of this machine, and not without end.
func clean(s string) string {
	const limit = 2000
	s = strings.ToValidUTF8(places().Replace(s), "?")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + " …"
	}
	return s
}
