package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestATenantSeesItsOwnCountsInEveryPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := lately()
	fill := func(at time.Time) {
		t.Helper()
		w.record(t, at, func(*violations.Violation) {})
		exec(t, w.url, "INSERT INTO decision_minute SELECT tenant_id, 12, $1, 1, 1, 0, 0, 1, 0 FROM tenant", at)
	}
	fill(now)
	fill(now.Add(-5 * day))
	must(w.KeepViolations(t.Context(), now, keep))(t)
	fill(now.Add(-9 * day)) // into the default ones
	for _, table := range []string{"violation_minute", "decision_minute"} {
		for _, tenant := range []rules.TenantID{w.ours.ID, w.theirs.ID} {
			var rows, others int
			err := w.ConnectionOf(tenant).QueryRow(t.Context(), fmt.Sprintf(
				"SELECT count(*), count(*) FILTER (WHERE tenant_id <> $1) FROM %s", table), tenant).Scan(&rows, &others)
			if err != nil || rows != 3 || others != 0 {
				t.Errorf("tenant %d sees %d rows of %s, %d of others (%v), want its own 3", tenant, rows, table, others,
					err)
			}
			if _, err := w.ConnectionOf(tenant).Exec(t.Context(),
				fmt.Sprintf("SELECT FROM %s_%s", table, named(now))); !isRefusal(err) {
				t.Errorf("a partition of %s itself can be read: %v", table, err)
			}
		}
	}
}

// A reader of all partitions is slow and right, so this reads plans.
func TestRecentCountsAreReadFromTheirPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := lately()
	must(w.KeepViolations(t.Context(), now, keep))(t)
	at := func(ago time.Duration) string { return "timestamptz '" + now.Add(-ago).Format(time.RFC3339) + "'" }
	params := map[string]string{
		"tenant_id": fmt.Sprint(w.ours.ID), "rule_id": "12", "rule_ids": "'{12}'", "since": at(0),
		"until": at(-time.Minute), "inner_since": at(-time.Minute), "inner_until": at(0), "minute": at(0),
		"step_seconds": "60",
		"dimension":    "'user'", "mode": "''", "meter": "''", "at_most": "10", "page_size": "10", "subject": "'x'",
		"live": "12", "candidate": "13", "user_id": "'42'",
	}
	for _, query := range []struct{ file, name string }{
		{"violation_minute.sql", "DeniedInMinute :one"},
		{"violation_minute.sql", "ComparedSubjects :many"},
		{"denial_count.sql", "TopOfDenials :many"},
		{"user_timeline.sql", "DenialsOfUser :many"},
		{"decision_minute.sql", "DecisionsByMinute :many"},
		{"decision_minute.sql", "RulesByDenialsInMinutes :many"},
		{"decision_span.sql", "TotalsByHour :many"},
	} {
		plan := strings.Join(lines(t, connect(t, w.url), "EXPLAIN "+queryOf(t, query.file, query.name, params)), "\n")
		if !strings.Contains(plan, "_"+named(now)) || strings.Contains(plan, "_default") ||
			strings.Contains(plan, "_"+named(now.Add(2*day))) {
			t.Errorf("the plan of %s is\n%s\nwant today, and not the days around it", query.name, plan)
		}
	}
}
