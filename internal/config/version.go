package config

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build says what a binary was built from.
type Build struct {
	Version  string // of the module; "devel" if built from a checkout without version control
	Revision string // the commit, with "-dirty" if there were changes on top; "" if not recorded
	Go       string // the Go version
}

// version is set by the linker in releases: -ldflags "-X github.com/sluicegate/sluice/internal/config.version=v1.4.0".
var version string

// ReadBuild reads what the Go tool chain recorded in the running binary.
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

// versionLine is the answer to --version.
func versionLine(binary string) string {
	b := ReadBuild()
	line := fmt.Sprintf("%s %s", binary, b.Version)
	if b.Revision != "" {
		line += " " + b.Revision
	}
	return fmt.Sprintf("%s %s %s/%s\n", line, b.Go, runtime.GOOS, runtime.GOARCH)
}
