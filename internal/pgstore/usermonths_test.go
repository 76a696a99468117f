package pgstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

// countUsers writes one batch of counts.
func (w *world) countUsers(t *testing.T, number int64, counts ...traffic.UserMonth) {
	t.Helper()
	if err := w.WriteUserMonths(t.Context(), "w", number, counts); err != nil {
		t.Fatal(err)
	}
}

// usersOf returns a month's counts as lines.
func (w *world) usersOf(t *testing.T, tenant rules.TenantID, month time.Time) (lines []string) {
	t.Helper()
	for after, isFirst := "", true; ; isFirst = false {
		page := must(w.UserMonths(t.Context(), tenant, month, after, isFirst, 2))(t)
		for _, c := range page {
			lines = append(lines, fmt.Sprintf("%s: %d %d %d.%06d", c.User, c.Allowed, c.Denied, c.Cost, c.CostParts))
			after = c.User
		}
		if len(page) < 2 {
			return lines
		}
	}
}

func TestUsersAreCountedOnceByMonthWhileTheirTenantRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.ours.ID, w.theirs.ID
	october, november := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	w.countUsers(t, 1, traffic.UserMonth{Tenant: ours, Month: november, User: "42", Allowed: 1})
	if got := w.usersOf(t, ours, november); got != nil {
		t.Errorf("the tenant does not record, and has %q", got)
	}
	w.recordFor(t, 7)
	for range 2 { // the second time, the answer to the first was lost
		w.countUsers(
			t, 2,
			traffic.UserMonth{Tenant: ours, Month: october, User: "42", Allowed: 9, Cost: 9},
			traffic.UserMonth{Tenant: ours, Month: november, User: "", Allowed: 5, Cost: 5},
			traffic.UserMonth{Tenant: ours, Month: november, User: "42", Allowed: 2, Denied: 1, Cost: 1, CostParts: 999_999},
			traffic.UserMonth{Tenant: ours, Month: november, User: "7", Allowed: 1, Cost: 1},
			traffic.UserMonth{Tenant: theirs, Month: november, User: "42", Allowed: 100, Cost: 100},
		)
	}
	w.countUsers(t, 3, traffic.UserMonth{Tenant: ours, Month: november, User: "42", Allowed: 1, CostParts: 1})
	want := []string{": 5 0 5.000000", "42: 3 1 2.000000", "7: 1 0 1.000000"}
	if got := w.usersOf(t, ours, november); !slices.Equal(got, want) {
		t.Errorf("the users are %q, want %q", got, want)
	}
	months := must(w.MonthsOfUser(t.Context(), ours, "42", []time.Time{october, november}))(t)
	if len(months) != 2 || months[0].Allowed != 9 || !months[0].Month.Equal(october) || months[1].Allowed != 3 {
		t.Errorf("the months of a user are %+v", months)
	}
	erased := must(w.EraseUser(t.Context(), ours, "42"))(t)
	if got := w.usersOf(t, ours, november); erased.Counts != 2 || len(got) != 2 {
		t.Errorf("%d counts were erased, want 2; %q remain", erased.Counts, got)
	}
}

// TestAMonthWithTooManyUsersGetsNoMore: those who were counted before still are, and other tenants have their own room.
func TestAMonthWithTooManyUsersGetsNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.CountUsersOfMonths(3)
	w.recordFor(t, 1)
	settings := rules.DefaultSettings()
	settings.RecordDays = 1
	other := must(w.CreateTenant(t.Context(), rules.Tenant{Slug: "other", Name: "Other", Settings: settings}))(t)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var many []traffic.UserMonth
	for i := range 5 { // one batch may pass the bound
		many = append(many, traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: fmt.Sprint(i), Allowed: 1})
	}
	w.countUsers(t, 1, many...)
	w.countUsers(
		t, 2,
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "", Allowed: 1}, traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "1", Allowed: 1},
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "late", Allowed: 1}, traffic.UserMonth{Tenant: w.ours.ID, Month: month.AddDate(0, 1, 0), User: "late", Allowed: 1},
		traffic.UserMonth{Tenant: other.ID, Month: month, User: "late", Allowed: 1},
	)
	want := []string{": 1 0 0.000000", "0: 1 0 0.000000", "1: 2 0 0.000000", "2: 1 0 0.000000", "3: 1 0 0.000000", "4: 1 0 0.000000"}
	if got := w.usersOf(t, w.ours.ID, month); !slices.Equal(got, want) {
		t.Errorf("the users are %q, want %q", got, want)
	}
	if n := len(w.usersOf(t, other.ID, month)) + len(w.usersOf(t, w.ours.ID, month.AddDate(0, 1, 0))); n != 2 {
		t.Errorf("%d users of another tenant and month were counted, want 2", n)
	}
}

func TestMonthsAreDroppedWithOtherCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recordFor(t, 1)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	w.countUsers(
		t, 1, traffic.UserMonth{Tenant: w.ours.ID, Month: month.AddDate(0, -4, 0), User: "42", Allowed: 1},
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "42", Allowed: 1},
	)
	must(w.KeepViolations(t.Context(), now, violations.Retention{Details: 24 * time.Hour, Counts: 60 * 24 * time.Hour}))(t)
	months := must(w.MonthsOfUser(t.Context(), w.ours.ID, "42", []time.Time{month.AddDate(0, -4, 0), month}))(t)
	if len(months) != 1 || !months[0].Month.Equal(month) {
		t.Errorf("the months %+v remain", months)
	}
}
