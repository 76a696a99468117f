package violations_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type bucket struct {
	tenant  rules.TenantID
	rule    rules.RuleID
	subject string
	other   bool
}

type ledger struct {
	mu       sync.Mutex
	applied  map[int64]bool
	batches  int
	checks   map[rules.TenantID]violations.Verdicts // rule 0
	verdicts map[rules.RuleID]violations.Verdicts
	tallies  map[bucket]violations.Tally // summed over minutes
	rows     []*violations.Violation
	minutes  map[time.Time]bool

	crossings []violations.Crossing
	callers   []violations.CallerCount
	recent    []violations.RecentDenials

	fail func(*violations.Batch) (before, after error) // before or after the batch is applied
}

func newLedger() *ledger {
	return &ledger{
		applied: map[int64]bool{}, checks: map[rules.TenantID]violations.Verdicts{},
		verdicts: map[rules.RuleID]violations.Verdicts{}, tallies: map[bucket]violations.Tally{},
		minutes: map[time.Time]bool{},
		fail:    func(*violations.Batch) (before, after error) { return nil, nil },
	}
}

var errAway = errors.New("away")

func (l *ledger) WriteViolations(ctx context.Context, b *violations.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before, after := l.fail(b)
	if before != nil {
		return before
	}
	if l.applied[b.Number] {
		return after
	}
	l.applied[b.Number] = true
	l.batches++
	for i := range b.Decisions {
		d := &b.Decisions[i]
		l.minutes[d.Minute] = true
		if d.Rule == 0 {
			l.checks[d.Tenant] = sum(l.checks[d.Tenant], d.Verdicts)
		} else {
			l.verdicts[d.Rule] = sum(l.verdicts[d.Rule], d.Verdicts)
		}
	}
	for i := range b.Tallies {
		t := &b.Tallies[i]
		at := bucket{t.Tenant, t.Rule, t.Subject, t.Other}
		all := l.tallies[at]
		all.Denied += t.Denied
		all.DetailDropped += t.DetailDropped
		all.Details = append(all.Details, t.Details...)
		l.tallies[at] = all
		l.rows = append(l.rows, t.Details...)
		l.minutes[t.Minute] = true
	}
	l.callers = append(l.callers, b.Callers...)
	l.recent = append(l.recent, b.Recent...)
	l.crossings = append(l.crossings, b.Crossings...)
	return after
}

func sum(a, b violations.Verdicts) violations.Verdicts {
	return violations.Verdicts{
		Allowed: a.Allowed + b.Allowed, Denied: a.Denied + b.Denied, Bypassed: a.Bypassed + b.Bypassed,
		Degraded: a.Degraded + b.Degraded, NearLimit: a.NearLimit + b.NearLimit, Taken: a.Taken + b.Taken,
		TakenParts: a.TakenParts + b.TakenParts,
	}
}

func (l *ledger) wantBalance(t *testing.T) (denied int64) {
	t.Helper()
	for at, tally := range l.tallies {
		counted := tally.DetailDropped
		for _, row := range tally.Details {
			counted += row.Count
		}
		if counted != tally.Denied {
			t.Errorf("%+v was denied %d times, and rows and dropped detail are %d", at, tally.Denied, counted)
		}
		denied += tally.Denied
	}
	return denied
}
