// Package fleet knows the processes that answer checks and their state.
//
// Each process reports itself to a [Store] every [Interval]. A process that stops deletes its report; one that was
// killed
// is forgotten when its report is older than [Recent], by the store's clock.
package fleet

import (
	"context"
	"log/slog"
	"time"
)

// The times of reports.
const (
	Interval = 5 * time.Second
	Recent   = time.Minute // the highest age of a live process's report

	counting = time.Minute

	reportTimeout = 3 * time.Second
)

// Process is a process's description of itself.
type Process struct {
	ID        string // of this run
	Name      string // of the host
	Version   string
	StartedAt time.Time

	RulesLoaded bool
	Rules       int64         // in memory, of all tenants
	RulesAge    time.Duration // 0 before the first load
	Database    string        // up, down or unknown, by the last read of rules
	Redis       string        // up, down, memory, or partial: some nodes of a cluster are down
	RedisDown   []string
	Algorithms  []string // rules.KnownWords; a rule with another one acts by its failure mode
}

// Count counts a process's decided checks.
type Count struct {
	Checks, Degraded int64 // decided without Redis
}

// Report is a process's state and its checks in the last Span, about a minute: checks come in waves, so a few
// seconds would say little about the rate.
type Report struct {
	Process
	At time.Time // on the store's clock

	Count
	Span time.Duration
}

// ChecksPerSecond returns the recent rate of checks.
func (r *Report) ChecksPerSecond() float64 {
	if r.Span <= 0 {
		return 0
	}
	return float64(r.Checks) / r.Span.Seconds()
}

// DegradedShare returns the share of recent checks that were decided without Redis, from 0 to 1.
func (r *Report) DegradedShare() float64 {
	if r.Checks == 0 {
		return 0
	}
	return float64(r.Degraded) / float64(r.Checks)
}

// Store stores the reports.
type Store interface {
	// ReportProcess also deletes reports older than a day.
	ReportProcess(ctx context.Context, report *Report) error
	EndProcess(ctx context.Context, id string) error
	// Processes returns the reports of at most this age, by name and start, and the store's time.
	Processes(ctx context.Context, within time.Duration) (reports []Report, now time.Time, err error)
}

type counted struct {
	Count
	at time.Time
}

// Keep reports a process until ctx ends, and then deletes the report. look returns the process's state and its
// counts since the start, from memory.
func Keep(ctx context.Context, store Store, look func() (Process, Count), log *slog.Logger) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	looks, fails := []counted{{at: time.Now()}}, false
	for {
		process, count := look()
		now := time.Now()
		base := looks[0]
		report := Report{Process: process, Span: now.Sub(base.at), Count: Count{
			Checks: count.Checks - base.Checks, Degraded: count.Degraded - base.Degraded,
		}}
		looks = append(looks, counted{count, now})
		for len(looks) > 2 && now.Sub(looks[1].at) >= counting {
			looks = looks[1:]
		}
		err := within(ctx, func(ctx context.Context) error { return store.ReportProcess(ctx, &report) })
		switch {
		case ctx.Err() != nil:
		case err == nil:
			fails = false
		case !fails:
			log.WarnContext(ctx, "this process cannot report itself; it is missing from the status page", "error", err)
			fails = true
		}
		select {
		case <-ctx.Done():
			end := func(ctx context.Context) error { return store.EndProcess(ctx, process.ID) }
			if err := within(context.WithoutCancel(ctx), end); err != nil {
				log.DebugContext(ctx, "the report of this process stays until it is old", "error", err)
			}
			return
		case <-tick.C:
		}
	}
}

func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return do(ctx)
}
