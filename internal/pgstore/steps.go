package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var (
	_ adapt.Store  = (*Store)(nil)
	_ adapt.Sink   = (*Store)(nil)
	_ adapt.Reader = (*Store)(nil)
)

const adaptRole = "adapt"

// Lead makes a process the leader of the control loop, unless another one is.
func (s *Store) Lead(ctx context.Context, holder string, lasts time.Duration) (now time.Time, leads bool, err error) {
	now, err = s.queriesFor(classBackground, everyTenant).Lead(ctx, adaptRole, holder, lasts.Seconds())
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return now, false, nil
	case err != nil:
		return now, false, wrap(err, "lead the control loop")
	}
	return now.UTC(), true, nil
}

// EndLead ends a process's leadership.
func (s *Store) EndLead(ctx context.Context, holder string) error {
	err := s.queriesFor(classBackground, everyTenant).EndLead(ctx, adaptRole, holder)
	return wrap(err, "end the lead of the control loop")
}

// WriteReports adds reports of backends to those of the present slice.
func (s *Store) WriteReports(ctx context.Context, reports []adapt.BackendReport) error {
	var p dbsqlc.BackendsReportedParams
	for i := range reports {
		r := &reports[i]
		p.TenantIds = append(p.TenantIds, int64(r.Tenant))
		p.Backends = append(p.Backends, r.Backend)
		p.Requests = append(p.Requests, r.Requests)
		p.Errors = append(p.Errors, r.Errors)
		p.Latencies = append(p.Latencies, arrayText(&r.Latency))
	}
	err := s.queriesFor(classBackground, everyTenant).BackendsReported(ctx, p)
	return wrap(err, "store reports of backends")
}

func arrayText(h *adapt.Histogram) string {
	text := []byte{'{'}
	for i, count := range h {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, count, 10)
	}
	return string(append(text, '}'))
}

// BackendReports returns the slices of all tenants' backends after a time.
func (s *Store) BackendReports(ctx context.Context, after time.Time) ([]adapt.BackendSlice, error) {
	rows, err := s.queriesFor(classBackground, everyTenant).BackendReports(ctx, after)
	return each(rows, sliceFromRow), wrap(err, "read reports of backends")
}

func sliceFromRow(row dbsqlc.BackendReport) adapt.BackendSlice {
	slice := adapt.BackendSlice{Tenant: row.TenantID, Backend: row.Backend, Slice: adapt.Slice{Start: row.Slice.UTC()}}
	slice.Requests, slice.Errors = row.Requests, row.Errors
	copy(slice.Latency[:], row.Latency)
	return slice
}

// DropBackendReports deletes slices before a time.
func (s *Store) DropBackendReports(ctx context.Context, before time.Time) error {
	err := s.queriesFor(classBackground, everyTenant).DropBackendReports(ctx, before)
	return wrap(err, "drop old reports of backends")
}

// RecentSteps returns the steps of all tenants that end after a time.
func (s *Store) RecentSteps(ctx context.Context, after time.Time) ([]rules.Step, error) {
	rows, err := s.queriesFor(classBackground, everyTenant).RecentSteps(ctx, after)
	return each(rows, stepFromRow), wrap(err, "read steps")
}

// PutSteps writes steps of one tenant, unless somebody else is writing.
func (s *Store) PutSteps(
	ctx context.Context, holder string, tenant rules.TenantID, steps []rules.Step, holds time.Duration,
) (written bool, err error) {
	err = s.transaction(ctx, classBackground, only(tenant), func(ctx context.Context, queries *dbsqlc.Queries) error {
		revision, err := queries.StepTenant(ctx, tenant, adaptRole, holder)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		written = true
		params := each(steps, func(step rules.Step) dbsqlc.PutStepParams {
			return dbsqlc.PutStepParams{
				TenantID: tenant, RuleID: step.RuleID, Percent: int16(step.Percent), SteppedAt: step.SteppedAt,
				HoldsSeconds: holds.Seconds(), Cause: step.Cause, Memory: step.Memory, Revision: revision,
			}
		})
		queries.PutStep(ctx, params).Exec(func(_ int, stepErr error) {
			if err == nil {
				err = stepErr
			}
		})
		return err
	})
	return written, wrap(writeError(err), "write steps of tenant %d", tenant)
}

func stepFromRow(row dbsqlc.RateLimitStep) rules.Step {
	return rules.Step{
		TenantID: row.TenantID, RuleID: row.RuleID, Percent: int(row.Percent), SteppedAt: row.SteppedAt.UTC(),
		InForceSince: row.InForceSince.UTC(), EndsAt: row.EndsAt.UTC(), Cause: row.Cause, Memory: row.Memory,
		Revision: row.Revision,
	}
}

// Adapting returns how the rules of a tenant that adapt stand.
func (s *Store) Adapting(ctx context.Context, tenant rules.TenantID) (standing []adapt.Standing, err error) {
	const attempted = "read the rules that adapt"
	ctx, cancel := s.within(ctx, classRead)
	defer cancel()
	q := s.queriesFor(classRead, only(tenant))
	ruleRows, err := q.AdaptingRules(ctx, tenant)
	if err != nil || len(ruleRows) == 0 {
		return nil, wrap(err, attempted)
	}
	stepRows, err := q.Steps(ctx, tenant)
	if err != nil {
		return nil, wrap(err, attempted)
	}
	reports, err := q.BackendReportsOfTenant(ctx, tenant)
	if err != nil {
		return nil, wrap(err, attempted)
	}
	steps := map[rules.RuleID]*rules.Step{}
	for _, row := range stepRows {
		step := stepFromRow(row)
		steps[step.RuleID] = &step
	}
	seen := map[string]*adapt.Seen{}
	for _, row := range reports {
		slice := sliceFromRow(row)
		if seen[slice.Backend] == nil {
			seen[slice.Backend] = new(adapt.Seen)
		}
		seen[slice.Backend].Add(&slice.Seen)
	}
	for _, rule := range s.rulesFromRows(ctx, ruleRows) {
		if rule.Adapts() {
			standing = append(standing, adapt.Standing{
				Rule: rule, Step: steps[rule.ID],
				Seen: seen[rule.Adapt.Backend],
			})
		}
	}
	return standing, nil
}

func (w write) requireAdaptRoom(ctx context.Context, all []rules.Rule, removed ...rules.RuleID) error {
	var adapting []int64
	written := ruleNumbers(removed)
	for i := range all {
		written = append(written, int64(all[i].ID))
		if all[i].Adapt.Backend != "" {
			adapting = append(adapting, int64(all[i].ID))
		}
	}
	if len(adapting) == 0 {
		return nil
	}
	others, err := w.CountAdaptingRules(ctx, w.tenant, written)
	if err != nil {
		return err
	}
	if others+int64(len(adapting)) > rules.MaxAdapting {
		return rules.FieldErrors{{
			Field: "adapt", Message: fmt.Sprintf("must be left out: at most %d rules of a tenant can adapt",
				rules.MaxAdapting),
		}}
	}
	return nil
}
