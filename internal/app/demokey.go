package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// DemoToken is the API key of the tenant that sluice dev makes, and everybody knows it.
const DemoToken = "slk_demo_0123456789abcdef0123456789abcdef"

// demoKeyWarnings is a warning, for readyz and the log, if the demo key is in force in a database that is served
// to others than whoever tries Sluice out: one that sluice dev was given once.
func demoKeyWarnings(command config.Command, snapshot *snapshot.Snapshot, now time.Time) []string {
	if command == config.SluiceDev || snapshot == nil {
		return nil
	}
	id, _, _ := auth.SplitKeyToken(DemoToken)
	key, ok := snapshot.Key(id)
	if !ok || key.Refusal(now) != "" {
		return nil
	}
	return []string{"the API key of sluice dev's demo, which everybody knows, is in force in this database; revoke it"}
}

// warnOfDemoKey logs that warning when rules were first loaded.
func warnOfDemoKey(ctx context.Context, command config.Command, watcher *snapshot.Watcher, log *slog.Logger) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for watcher.Snapshot() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	for _, warning := range demoKeyWarnings(command, watcher.Snapshot(), time.Now()) {
		log.WarnContext(ctx, warning)
	}
}
