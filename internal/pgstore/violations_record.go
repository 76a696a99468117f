package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/violations"
)

var _ violations.Sink = (*Store)(nil)

// WriteViolations writes a batch of any tenants within 5 s.
func (s *Store) WriteViolations(ctx context.Context, batch *violations.Batch) error {
	err := s.transaction(ctx, classRecord, everyTenant, func(ctx context.Context, queries *dbsqlc.Queries) error {
		fresh, err := queries.BatchWritten(ctx, batch.Writer, batch.Number)
		if err != nil || fresh == 0 {
			return err
		}
		if err := recordRecent(ctx, queries, batch.Recent); err != nil {
			return err
		}
		if err := recordCallers(ctx, queries, batch.Callers); err != nil {
			return err
		}
		if err := recordDecisions(ctx, queries, batch.Decisions); err != nil {
			return err
		}
		if err := recordTallies(ctx, queries, batch.Tallies); err != nil {
			return err
		}
		return recordCrossings(ctx, queries, batch.Crossings)
	})
	if err != nil {
		return fmt.Errorf("write batch %d of violations: %w", batch.Number, recordError(err))
	}
	return nil
}

// recordError returns violations.ErrRefused for rows that can never be stored. A failed check constraint is retried:
// only the default partition has one, and a row fails it if its day's partition was made meanwhile.
func recordError(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && len(refusal.Code) == 5 && refusal.Code != stateCheckViolation {
		switch refusal.Code[:2] {
		case "22", "23", "54": // data exception, integrity constraint violation, program limit exceeded
			return fmt.Errorf("%w: %w", violations.ErrRefused, err)
		}
	}
	return err
}

func recordRecent(ctx context.Context, queries *dbsqlc.Queries, recent []violations.RecentDenials) error {
	if len(recent) == 0 {
		return nil
	}
	p := dbsqlc.DenialsCountedParams{SlotSeconds: violations.SlotLength.Seconds()}
	for i := range recent {
		r := &recent[i]
		p.TenantIds = append(p.TenantIds, int64(r.Tenant))
		p.Dimensions = append(p.Dimensions, string(r.Dimension))
		p.Slots = append(p.Slots, r.Slot)
		p.RuleIds = append(p.RuleIds, int64(r.Rule))
		p.Modes = append(p.Modes, string(r.Mode))
		p.Vals = append(p.Vals, r.Value)
		p.Others = append(p.Others, r.Other)
		p.Denied = append(p.Denied, r.Denied)
	}
	if err := queries.DenialsCounted(ctx, p); err != nil {
		return fmt.Errorf("count recent denials: %w", err)
	}
	return nil
}

func recordCallers(ctx context.Context, queries *dbsqlc.Queries, callers []violations.CallerCount) error {
	if len(callers) == 0 {
		return nil
	}
	var p dbsqlc.CallersCountedParams
	for i := range callers {
		c := &callers[i]
		p.TenantIds = append(p.TenantIds, int64(c.Tenant))
		p.Dimensions = append(p.Dimensions, string(c.Dimension))
		p.Slots = append(p.Slots, c.Slot)
		p.Vals = append(p.Vals, c.Value)
		p.Checks = append(p.Checks, c.Checks)
	}
	if err := queries.CallersCounted(ctx, p); err != nil {
		return fmt.Errorf("count callers: %w", err)
	}
	return nil
}

func recordDecisions(ctx context.Context, queries *dbsqlc.Queries, decisions []violations.DecisionCount) error {
	if len(decisions) == 0 {
		return nil
	}
	var p dbsqlc.DecisionsCountedParams
	for i := range decisions {
		d := &decisions[i]
		p.TenantIds = append(p.TenantIds, int64(d.Tenant))
		p.RuleIds = append(p.RuleIds, int64(d.Rule))
		p.Minutes = append(p.Minutes, d.Minute)
		p.Allowed = append(p.Allowed, d.Allowed)
		p.Denied = append(p.Denied, d.Denied)
		p.Bypassed = append(p.Bypassed, d.Bypassed)
		p.Degraded = append(p.Degraded, d.Degraded)
		p.Taken = append(p.Taken, d.Taken)
		p.TakenParts = append(p.TakenParts, int64(d.TakenParts))
		p.NearLimit = append(p.NearLimit, d.NearLimit)
	}
	if err := queries.DecisionsCounted(ctx, p); err != nil {
		return fmt.Errorf("count decisions: %w", err)
	}
	err := queries.DecisionsCountedBySpan(ctx, dbsqlc.DecisionsCountedBySpanParams{
		TenantIds: p.TenantIds, RuleIds: p.RuleIds, Minutes: p.Minutes, Allowed: p.Allowed, Denied: p.Denied,
		Bypassed: p.Bypassed, Degraded: p.Degraded, Taken: p.Taken, TakenParts: p.TakenParts, Spans: spans,
	})
	if err != nil {
		return fmt.Errorf("count decisions by span: %w", err)
	}
	return nil
}

func recordTallies(ctx context.Context, queries *dbsqlc.Queries, tallies []violations.Tally) error {
	if len(tallies) == 0 {
		return nil
	}
	var counts dbsqlc.ViolationsCountedParams
	var rows dbsqlc.ViolationsRecordedParams
	for i := range tallies {
		t := &tallies[i]
		counts.TenantIds = append(counts.TenantIds, int64(t.Tenant))
		counts.Minutes = append(counts.Minutes, t.Minute)
		counts.RuleIds = append(counts.RuleIds, int64(t.Rule))
		counts.Subjects = append(counts.Subjects, t.Subject)
		counts.Others = append(counts.Others, t.Other)
		counts.Denied = append(counts.Denied, t.Denied)
		counts.DetailDropped = append(counts.DetailDropped, t.DetailDropped)
		for _, v := range t.Details {
			appendViolation(&rows, v)
		}
	}
	if err := queries.ViolationsCounted(ctx, counts); err != nil {
		return fmt.Errorf("count violations: %w", err)
	}
	if len(rows.TenantIds) == 0 {
		return nil
	}
	if err := queries.ViolationsRecorded(ctx, rows); err != nil {
		return fmt.Errorf("record violations: %w", err)
	}
	return nil
}

func appendViolation(rows *dbsqlc.ViolationsRecordedParams, v *violations.Violation) {
	tokens := math.NaN()
	if v.TokensKnown {
		tokens = v.Tokens.Float()
	}
	rows.TenantIds = append(rows.TenantIds, int64(v.Tenant))
	rows.RequestedAt = append(rows.RequestedAt, v.ID.At)
	rows.LastAt = append(rows.LastAt, v.LastAt)
	rows.Counts = append(rows.Counts, v.Count)
	rows.RuleIds = append(rows.RuleIds, int64(v.Rule))
	rows.BucketKeys = append(rows.BucketKeys, v.BucketKey())
	rows.Scopes = append(rows.Scopes, string(v.Scope))
	rows.Modes = append(rows.Modes, string(v.Mode))
	rows.Reasons = append(rows.Reasons, v.Reason)
	rows.KeyPatterns = append(rows.KeyPatterns, v.Pattern)
	rows.RuleVersions = append(rows.RuleVersions, v.Version)
	rows.Rates = append(rows.Rates, v.Rate)
	rows.Bursts = append(rows.Bursts, v.Burst)
	rows.UserIds = append(rows.UserIds, v.UserID)
	rows.IpAddresses = append(rows.IpAddresses, addressText(v.IP))
	rows.Endpoints = append(rows.Endpoints, v.Endpoint)
	rows.Methods = append(rows.Methods, v.Method)
	rows.Plans = append(rows.Plans, v.Plan)
	rows.Costs = append(rows.Costs, v.Cost.Float())
	rows.Tokens = append(rows.Tokens, tokens)
	rows.Algorithms = append(rows.Algorithms, string(v.Algorithm))
	rows.LimitTexts = append(rows.LimitTexts, v.LimitText)
	rows.Meters = append(rows.Meters, string(v.Meter))
	rows.RetryAfterMs = append(rows.RetryAfterMs, int64((v.RetryAfter+time.Millisecond-1)/time.Millisecond))
}

func addressText(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.String()
}
