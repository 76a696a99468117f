// Package fleet knows which processes answer checks, and how each of them is.
//
// Each process reports itself to a [Store] every [Interval], beside its checks and never in their way: a
// report that the store does not take in time is skipped. A report counts the checks of about a minute. A process that
// ends in order takes its report back; one that was killed is seen no more once its last report is older
// than [Recent]. Ages are reckoned by the store's clock, so that clocks which differ do no harm.
//
// While the store is away nobody can report and nobody can look. What a process does then is in its
// metrics and in its readiness.
package fleet

import (
	"context"
	"log/slog"
	"time"
)

const (
	// Interval is the pause between two reports.
	Interval = 5 * time.Second
	// Recent is how old the report of a process that lives can be.
	Recent = time.Minute

	// counting is how far back the checks of a report are counted.
	counting = time.Minute

	// patience is how long a report may take.
	patience = 3 * time.Second
)

// Process is what a process says of itself.
type Process struct {
	ID        string // of one run
	Name      string // of its host
	Version   string
	StartedAt time.Time

	RulesLoaded bool
	Rules       int64         // in memory, of all tenants
	RulesAge    time.Duration // 0 while none were ever loaded
	// Database says how reading rules goes: up, down or unknown.
	Database string
	// Redis is up, down, or memory if none is configured; partial means that some nodes of a cluster are down.
	Redis string
	// RedisDown are the addresses of these nodes.
	RedisDown []string
	// Algorithms are those that the process knows, rules.WordAdapt, rules.WordLeases and rules.WordSpread. A rule of another one acts by its failure mode there.
	Algorithms []string
}

// Count is how many checks a process has decided since it began.
type Count struct {
	Checks, Degraded int64 // Degraded are those among them that were decided without Redis
}

// Report is what a store knows of a process.
type Report struct {
	Process
	At time.Time // by the store's clock

	// Count is of Span, about the last minute: checks come in waves, so that a few seconds say little of a rate.
	Count
	Span time.Duration
}

// ChecksPerSecond is how many checks the process decided a second lately.
func (r *Report) ChecksPerSecond() float64 {
	if r.Span <= 0 {
		return 0
	}
	return float64(r.Checks) / r.Span.Seconds()
}

// DegradedShare is the part of the recent checks that was decided without Redis, from 0 to 1.
func (r *Report) DegradedShare() float64 {
	if r.Checks == 0 {
		return 0
	}
	return float64(r.Degraded) / float64(r.Checks)
}

// Store is where processes report.
type Store interface {
	// ReportProcess replaces a process's report, and forgets those of others that are a day old.
	ReportProcess(ctx context.Context, report *Report) error
	// EndProcess takes a process's report back.
	EndProcess(ctx context.Context, id string) error
	// Processes returns the reports that are no older than that, by name and start, and the store's time.
	Processes(ctx context.Context, within time.Duration) (reports []Report, now time.Time, err error)
}

// counted is what a process had counted at a time.
type counted struct {
	Count
	at time.Time
}

// Keep reports a process until ctx ends, and then takes the report back. Look is asked for each report
// and must answer from memory; it says how the process is and what it has counted since it began.
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return do(ctx)
}
