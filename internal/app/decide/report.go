package decide

import (
	"crypto/rand"
	"os"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/rules"
)

func (a *API) look() func() (fleet.Process, fleet.Count) {
	id, started, version := rand.Text(), time.Now(), config.ReadBuild().Version
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return func() (fleet.Process, fleet.Count) {
		state := a.Readiness()
		_, redisDown := a.Buckets.State()
		process := fleet.Process{
			ID: id, Name: name, Version: version, StartedAt: started,
			RulesLoaded: state.RulesLoaded, Database: state.Database, Redis: state.Redis, RedisDown: redisDown,
			Algorithms: rules.KnownWords(),
		}
		if snapshot := a.Watcher.Snapshot(); snapshot != nil {
			process.Rules, process.RulesAge = int64(snapshot.Sizes().Rules), state.RulesAge
		}
		count := fleet.Count{}
		count.Checks, count.Degraded = a.Decisions.Counted()
		return process, count
	}
}
