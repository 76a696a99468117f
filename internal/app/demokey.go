package app

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// DemoToken is the public API key of the tenant that sluice dev creates.
const DemoToken = "slk_demo_0123456789abcdef0123456789abcdef"

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

func (p *Process) warnOfDemoKey(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-p.Watcher.Loaded():
	}
	for _, warning := range demoKeyWarnings(p.Config.Command, p.Watcher.Snapshot(), time.Now()) {
		p.Log.WarnContext(ctx, warning)
	}
}
