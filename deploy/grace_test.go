package deploy

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// Beside the drain delay, requests in flight and the last write of counts may take a shutdown timeout each. The
// chart computes the same.
func TestProcessesHaveTimeToStop(t *testing.T) {
	t.Parallel()
	timeout := first(t, "../docs/configuration.md", "`SLUICE_SHUTDOWN_TIMEOUT` .* Default: `([0-9]+s)`")
	for _, path := range []string{
		"systemd/sluice-api.service", "systemd/sluice-admin.service", "compose/compose.yaml",
	} {
		drain := first(t, path, `SLUICE_DRAIN_DELAY(?:=|: )([0-9]+s)`)
		grace := first(t, path, `(?:TimeoutStopSec=|stop_grace_period: )([0-9]+s)`)
		if want := drain + 2*timeout + 5*time.Second; grace < want {
			t.Errorf("%s kills a process after %v, which may need %v", path, grace, want)
		}
	}
}

func first(t *testing.T, path, pattern string) time.Duration {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no %s", path, pattern)
	}
	duration, err := time.ParseDuration(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return duration
}
