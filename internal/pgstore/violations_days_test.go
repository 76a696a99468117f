package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// TestATenantSeesItsOwnCountsInEveryPartition reads through the parent, which has the policies.
func TestATenantSeesItsOwnCountsInEveryPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := lately()
	for _, ago := range []time.Duration{0, 5 * day} {
		w.record(t, now.Add(-ago), func(*violations.Violation) {})
	}
	must(w.KeepViolations(t.Context(), now, keep))(t)
	w.record(t, now.Add(-9*day), func(*violations.Violation) {}) // into the default one
	for _, tenant := range []rules.TenantID{w.ours.ID, w.theirs.ID} {
		var rows, others int
		err := w.ConnectionOf(tenant).QueryRow(t.Context(),
			"SELECT count(*), count(*) FILTER (WHERE tenant_id <> $1) FROM violation_minute", tenant).Scan(&rows,
			&others)
		if err != nil || rows != 3 || others != 0 {
			t.Errorf("tenant %d sees %d rows, %d of others (%v), want its own 3", tenant, rows, others, err)
		}
		if _, err := w.ConnectionOf(tenant).Exec(t.Context(),
			"SELECT FROM violation_minute_"+named(now)); !isRefusal(err) {
			t.Errorf("a partition itself can be read: %v", err)
		}
	}
}

// TestRecentCountsAreReadFromTheirPartitions reads plans, because a reader of all partitions is slow and right.
func TestRecentCountsAreReadFromTheirPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := lately()
	must(w.KeepViolations(t.Context(), now, keep))(t)
	plan := strings.Join(lines(t, connect(t, w.url), `EXPLAIN SELECT minute FROM violation_minute
		WHERE tenant_id = $1 AND rule_id = 12 AND minute > $2 AND minute <= $3`, w.ours.ID, now.Add(-time.Minute), now),
		"\n")
	if today := "violation_minute_" + named(now); !strings.Contains(plan, today) ||
		strings.Contains(plan, fmt.Sprintf("violation_minute_%s", named(now.Add(-2*day)))) ||
		strings.Contains(plan, "violation_minute_"+named(now.Add(2*day))) {
		t.Errorf("the plan is\n%s\nwant %s, and not the days around it", plan, today)
	}
}
