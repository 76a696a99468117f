package config

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build is what a binary was built from.
type Build struct {
	Version  string // of the module; "devel" for a checkout without version control
	Revision string // commit, with "-dirty" for uncommitted changes; "" if not recorded
	Go       string // Go version
}

// version is set by the linker in releases: -ldflags "-X
// github.com/sluicegate/sluice/internal/config.version=v1.4.0".
var version string

// ReadBuild reads the Go tool chain's record in the running binary.
func ReadBuild() Build {
	b := Build{Version: "devel", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := cmp.Or(version, info.Main.Version); v != "" && v != "(devel)" {
		b.Version = v
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if b.Revision != "" {
		b.Revision += dirty
	}
	return b
}

func versionLine(binary string) string {
	b := ReadBuild()
	line := fmt.Sprintf("%s %s", binary, b.Version)
	if b.Revision != "" {
		line += " " + b.Revision
	}
	return fmt.Sprintf("%s %s %s/%s\n", line, b.Go, runtime.GOOS, runtime.GOARCH)
}
