package pgstore

import (
	"context"
	"fmt"
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
		RedisDown:   append([]string{}, r.RedisDown...), // the column takes no null
		Checks:      r.Checks,
		Degraded:    r.Degraded,
		SpanMs:      r.Span.Milliseconds(),
		Algorithms:  append([]string{}, r.Algorithms...),
	})
	if err != nil {
		return fmt.Errorf("report process %s: %w", r.ID, writeError(err))
	}
	return nil
}

// EndProcess deletes a process's report.
func (s *Store) EndProcess(ctx context.Context, id string) error {
	if err := s.queriesFor(classRecord, everyTenant).EndProcess(ctx, id); err != nil {
		return fmt.Errorf("take the report of process %s back: %w", id, domainError(err))
	}
	return nil
}

// Processes returns at most a thousand reports.
func (s *Store) Processes(ctx context.Context, within time.Duration) (reports []fleet.Report, now time.Time,
	err error,
) {
	rows, err := ask(ctx, s, everyTenant,
		func(ctx context.Context, q *dbsqlc.Queries) (rows []dbsqlc.ApiProcess, err error) {
			if now, err = q.Now(ctx); err != nil {
				return nil, err
			}
			return q.Processes(ctx, within.Seconds())
		})
	if err != nil {
		return nil, now, fmt.Errorf("read the reports of processes: %w", err)
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
	}), now.UTC(), nil
}
