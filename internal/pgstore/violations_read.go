package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

var _ violations.Store = (*Store)(nil)

const lookAt = 10_000

// Violations reads the index of the first of these that the filter names exactly: user, address, endpoint, rule.
func (s *Store) Violations(
	ctx context.Context, tenant rules.TenantID, f *violations.Filter, before violations.ID, limit int,
) (page violations.Page, err error) {
	if before == (violations.ID{}) || before.At.After(f.Until) {
		before = violations.ID{At: f.Until}
	}
	of := dbsqlc.LastLookedAtParams{
		TenantID: tenant, Since: f.Since, BeforeAt: before.At, BeforeID: before.Number, LookAt: lookAt,
	}
	of.ByUser, of.ByAddress, of.ByEndpoint, of.ByRule = indexOf(f)
	wanted := dbsqlc.ViolationsBeforeParams{
		TenantID: tenant, Since: f.Since, BeforeAt: before.At, BeforeID: before.Number, LookAt: lookAt,
		ByUser: of.ByUser, ByAddress: of.ByAddress, ByEndpoint: of.ByEndpoint, ByRule: of.ByRule,
		RuleID: int64(f.Rule), Scope: string(f.Scope), Mode: string(f.Mode), Meter: f.Meter, Plan: f.Plan,
		Network:  networkText(f.IP),
		Endpoint: f.Endpoint, EndpointPrefix: f.EndpointPrefix, PageSize: rowLimit(limit) + 1,
	}
	class := classFor(limit)
	if !indexed(f) {
		class = classHeavy
	}
	var rows []dbsqlc.RateLimitViolation
	var last []dbsqlc.LastLookedAtRow
	err = s.oneView(ctx, class, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		if rows, err = q.ViolationsBefore(ctx, wanted); err != nil || len(rows) > limit || indexed(f) {
			return err
		}
		last, err = q.LastLookedAt(ctx, of)
		return err
	})
	if err != nil {
		return violations.Page{}, fmt.Errorf("read violations: %w", domainError(err))
	}
	switch {
	case len(rows) > limit:
		rows = rows[:limit]
		page.Next = violations.ID{At: rows[limit-1].RequestedAt.UTC(), Number: rows[limit-1].ViolationID}
	case len(last) == 2: // there are rows that it did not look at
		page.Next = violations.ID{At: last[0].RequestedAt.UTC(), Number: last[0].ViolationID}
	}
	page.Violations = each(rows, violationFromRow)
	return page, nil
}

// Violation returns one row.
func (s *Store) Violation(ctx context.Context, tenant rules.TenantID, id violations.ID) (violations.Violation, error) {
	row, err := s.queriesFor(classRead, only(tenant)).Violation(ctx, tenant, id.At, id.Number)
	return violationFromRow(row), wrap(err, "read violation %s", id)
}

// ViolationsBeside returns other violations of the same user and minute.
func (s *Store) ViolationsBeside(ctx context.Context, of *violations.Violation,
	limit int,
) (beside []violations.Violation, err error) {
	minute := of.ID.At.Truncate(time.Minute)
	filter := &violations.Filter{Since: minute, Until: minute.Add(time.Minute), UserID: of.UserID}
	if of.UserID == "" {
		if !of.IP.IsValid() {
			return nil, nil
		}
		filter.IP, _ = of.IP.Prefix(of.IP.BitLen()) // never fails for the whole address
	}
	page, err := s.Violations(ctx, of.Tenant, filter, violations.ID{}, limit+1)
	for _, v := range page.Violations {
		if v.ID != of.ID && len(beside) < limit {
			beside = append(beside, v)
		}
	}
	return beside, err
}

// ViolationsArrived returns recently written rows.
func (s *Store) ViolationsArrived(
	ctx context.Context, tenant rules.TenantID, filter *violations.Filter, since time.Time, within time.Duration,
	limit int,
) (arrived []violations.Violation, more bool, err error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).ViolationsArrived(ctx, dbsqlc.ViolationsArrivedParams{
		TenantID: tenant, Since: orNull(since), Seconds: within.Seconds(), PageSize: rowLimit(limit),
	})
	if err != nil {
		return nil, false, wrap(err, "read the violations that arrived")
	}
	for _, row := range rows {
		if v := violationFromRow(row); filter.Wants(&v) {
			arrived = append(arrived, v)
		}
	}
	return arrived, len(rows) == limit, nil
}

// ArrivedAt returns when a row was written.
func (s *Store) ArrivedAt(ctx context.Context, tenant rules.TenantID, id violations.ID) (time.Time, error) {
	q := s.queriesFor(classRead, only(tenant))
	if id == (violations.ID{}) {
		now, err := q.Now(ctx)
		return now.UTC(), wrap(err, "read the database's time")
	}
	at, err := q.ViolationArrivedAt(ctx, tenant, id.At, id.Number)
	return at.UTC(), wrap(err, "read when violation %s arrived", id)
}

// DeniedInMinute takes the violation's own count as a minimum: without room in a recorder, it was counted in a later
// minute.
func (s *Store) DeniedInMinute(ctx context.Context, of *violations.Violation) (int64, error) {
	denied, err := s.queriesFor(classRead, only(of.Tenant)).DeniedInMinute(ctx, dbsqlc.DeniedInMinuteParams{
		TenantID: of.Tenant, RuleID: of.Rule, Minute: of.ID.At.Truncate(time.Minute), Subject: of.Subject,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return of.Count, nil
	}
	return max(denied, of.Count), wrap(err, "read how often rule %d denied in a minute", of.Rule)
}

func indexOf(f *violations.Filter) (user string, address *netip.Addr, endpoint string, rule int64) {
	switch {
	case f.UserID != "":
		return f.UserID, nil, "", 0
	case f.IP.IsSingleIP():
		single := f.IP.Addr()
		return "", &single, "", 0
	case f.Endpoint != "":
		return "", nil, f.Endpoint, 0
	}
	return "", nil, "", int64(f.Rule)
}

func indexed(f *violations.Filter) bool {
	rest := *f
	rest.Since, rest.Until = time.Time{}, time.Time{}
	switch {
	case f.UserID != "":
		rest.UserID = ""
	case f.IP.IsSingleIP():
		rest.IP = violations.Filter{}.IP
	case f.Endpoint != "":
		rest.Endpoint = ""
	default:
		rest.Rule = 0
	}
	return rest == violations.Filter{}
}

func networkText(network netip.Prefix) string {
	if !network.IsValid() {
		return ""
	}
	return network.String()
}

func violationFromRow(row dbsqlc.RateLimitViolation) violations.Violation {
	_, subject, _ := strings.Cut(row.BucketKey, ":")
	var own rules.Limit
	if strings.HasPrefix(row.BucketKey, "-") {
		own, subject, _ = rules.CutOwnSubject(subject)
	}
	v := violations.Violation{
		ID:        violations.ID{At: row.RequestedAt.UTC(), Number: row.ViolationID},
		Tenant:    row.TenantID,
		Rule:      row.RuleID,
		Subject:   subject,
		OwnLimit:  own,
		Reason:    row.Reason,
		Scope:     rules.Scope(row.Scope),
		Mode:      rules.Mode(row.Mode),
		Pattern:   row.KeyPattern,
		Version:   row.RuleVersion,
		Rate:      row.RatePerSecond,
		Burst:     row.BurstCapacity,
		Algorithm: rules.Algorithm(row.Algorithm),
		LimitText: row.LimitText,
		Meter:     rules.Meter(row.Meter),
		UserID:    orEmpty(row.UserID),
		IP:        orZeroValue(row.IpAddress),
		Endpoint:  orEmpty(row.Endpoint),
		Method:    orEmpty(row.Method),
		Plan:      orEmpty(row.Plan),
		Cost:      tokens(row.Cost),
		Count:     row.Count,
		LastAt:    row.LastAt.UTC(),

		RetryAfter: time.Duration(orZeroValue(row.RetryAfterMs)) * time.Millisecond,
	}
	if row.TokensAtTime != nil {
		v.Tokens, v.TokensKnown = tokens(*row.TokensAtTime), true
	}
	return v
}

func tokens(amount float64) violations.Tokens {
	return violations.Tokens(math.Round(amount * float64(violations.Token)))
}
