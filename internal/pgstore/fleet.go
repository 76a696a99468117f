package pgstore

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
)

var _ fleet.Store = (*Store)(nil)

// ReportProcess stores a report, within the context's time.
func (s *Store) ReportProcess(ctx context.Context, r *fleet.Report) error {
	err := s.queriesFor(classRecord, everyTenant).ReportProcess(ctx, dbsqlc.ReportProcessParams{
		ProcessID:   r.ID,
		Name:        r.Name,
		Version:     r.Version,
		StartedAt:   r.StartedAt,
		RulesLoaded: r.RulesLoaded,
		Rules:       r.Rules,
		RulesAgeMs:  r.RulesAge.Milliseconds(),
		Database:    r.Database,
		Redis:       r.Redis,
		RedisDown:   listOf(r.RedisDown),
		Checks:      r.Checks,
		Degraded:    r.Degraded,
		SpanMs:      r.Span.Milliseconds(),
		Algorithms:  listOf(r.Algorithms),
	})
	return wrap(writeError(err), "report process %s", r.ID)
}

// EndProcess deletes a process's report.
func (s *Store) EndProcess(ctx context.Context, id string) error {
	err := s.queriesFor(classRecord, everyTenant).EndProcess(ctx, id)
	return wrap(err, "take the report of process %s back", id)
}

// Processes returns at most a thousand reports.
func (s *Store) Processes(ctx context.Context, within time.Duration) (reports []fleet.Report, now time.Time,
	err error,
) {
	q := s.queriesFor(classRead, everyTenant)
	now, err = q.Now(ctx)
	var rows []dbsqlc.ApiProcess
	if err == nil {
		rows, err = q.Processes(ctx, within.Seconds())
	}
	return each(rows, func(row dbsqlc.ApiProcess) fleet.Report {
		return fleet.Report{
			Process: fleet.Process{
				ID:          row.ProcessID,
				Name:        row.Name,
				Version:     row.Version,
				StartedAt:   row.StartedAt.UTC(),
				RulesLoaded: row.RulesLoaded,
				Rules:       row.Rules,
				RulesAge:    time.Duration(row.RulesAgeMs) * time.Millisecond,
				Database:    row.Database,
				Redis:       row.Redis,
				RedisDown:   row.RedisDown,
				Algorithms:  row.Algorithms,
			},
			At:    row.ReportedAt.UTC(),
			Count: fleet.Count{Checks: row.Checks, Degraded: row.Degraded},
			Span:  time.Duration(row.SpanMs) * time.Millisecond,
		}
	}), now.UTC(), wrap(err, "read the reports of processes")
}
