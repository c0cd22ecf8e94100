// Which version of the program this is.

package server

import "runtime/debug"

const unreleased = "unreleased"

// Version is what the toolchain stamped into the binary: the module's version, or the commit that it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unreleased
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return unreleased
}
