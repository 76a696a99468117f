package pgstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func crossing(tenant rules.TenantID, at time.Time, change ...func(*violations.Crossing)) violations.Crossing {
	hour := at.Truncate(time.Hour)
	c := violations.Crossing{
		Tenant: tenant, Rule: 12, Subject: "42", WindowStart: hour, WindowEnd: hour.Add(time.Hour), Share: 80, At: at,
		Used: 80_500_000, Burst: 100, Mode: rules.ModeEnforce, RuleName: "hourly", Pattern: "user:{user_id}",
		UserID: "42", Meter: "usd",
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func (w *world) cross(t *testing.T, writer string, crossings ...violations.Crossing) {
	t.Helper()
	batch := violations.Batch{Writer: writer, Number: time.Now().UnixNano(), Crossings: crossings}
	if err := w.WriteViolations(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}
}

func (w *world) crossings(t *testing.T, filter violations.CrossingFilter) []violations.Crossing {
	t.Helper()
	return must(w.Crossings(t.Context(), w.ours.ID, filter, violations.CrossingPlace{}, 100))(t)
}

func TestOfSeveralRecordsOfACrossingTheEarliestIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	same := func(change func(*violations.Crossing)) violations.Crossing { return crossing(w.ours.ID, at, change) }
	w.cross(t, "a", same(func(c *violations.Crossing) { c.At, c.Used = at.Add(time.Second), 90_000_000 }))
	w.cross(t, "b",
		// twice in one batch, as after a reset
		same(func(c *violations.Crossing) { c.At, c.Used = at.Add(time.Minute), 99_000_000 }),
		same(func(*violations.Crossing) {}),
		same(func(c *violations.Crossing) { c.Used = 81_500_000 })) // at the same moment
	w.cross(t, "b", same(func(c *violations.Crossing) { c.Used = 81_000_000 }))
	w.cross(t, "c", same(func(c *violations.Crossing) { c.At = at.Add(2 * time.Second) }))
	got := w.crossings(t, violations.CrossingFilter{})
	if len(got) != 1 || got[0].Number == 0 {
		t.Fatalf("stored %+v, want one", got)
	}
	if got[0].Number = 0; got[0] != crossing(w.ours.ID, at) {
		t.Errorf("stored\n%+v, want\n%+v", got[0], crossing(w.ours.ID, at))
	}
	w.cross(t, "d",
		same(func(c *violations.Crossing) { c.Share = 100 }),
		same(func(c *violations.Crossing) { c.Rule++ }),
		same(func(c *violations.Crossing) { c.Subject, c.UserID = "203.0.113.9", "" }),
		same(func(c *violations.Crossing) { c.WindowStart = c.WindowEnd }),
		crossing(w.theirs.ID, at))
	if got := w.crossings(t, violations.CrossingFilter{}); len(got) != 5 {
		t.Errorf("with other shares, rules, subjects and windows there are %d, want 5", len(got))
	}
}

func TestRecordersWriteTheSameCrossingsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	var rows []violations.Crossing
	for i := range 200 {
		rows = append(rows, crossing(w.ours.ID, at,
			func(c *violations.Crossing) { c.Subject, c.UserID = fmt.Sprint(i), fmt.Sprint(i) }))
	}
	var writers sync.WaitGroup
	for writer := range 4 {
		own := slices.Clone(rows)
		if writer%2 == 1 {
			slices.Reverse(own)
		}
		writers.Go(func() {
			for part := range slices.Chunk(own, 50) {
				batch := violations.Batch{Writer: fmt.Sprint(writer), Number: time.Now().UnixNano(), Crossings: part}
				if err := w.WriteViolations(t.Context(), &batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	first := must(w.Crossings(t.Context(), w.ours.ID, violations.CrossingFilter{}, violations.CrossingPlace{}, 1000))(t)
	if len(first) != len(rows) {
		t.Errorf("%d crossings are stored, want %d", len(first), len(rows))
	}
}

func TestCrossingsAreReadInPagesByRuleAndUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	for i := range 7 {
		w.cross(t, "a",
			crossing(w.ours.ID, at.Add(time.Duration(i/2)*time.Hour),
				func(c *violations.Crossing) { c.Share = 80 + i }),
			crossing(w.ours.ID, at, func(c *violations.Crossing) { c.Rule, c.Share = 13, 80+i }),
			crossing(w.ours.ID, at, func(c *violations.Crossing) { c.Subject, c.UserID, c.Share = "7", "7", 80+i }),
			crossing(w.theirs.ID, at, func(c *violations.Crossing) { c.Share = 80 + i }))
	}
	for name, test := range map[string]struct {
		filter violations.CrossingFilter
		want   int
	}{
		"all":               {violations.CrossingFilter{}, 21},
		"of a rule":         {violations.CrossingFilter{Rule: 12}, 14},
		"of a user":         {violations.CrossingFilter{UserID: "42"}, 14},
		"of a user by rule": {violations.CrossingFilter{UserID: "42", Rule: 12}, 7},
		"of nobody":         {violations.CrossingFilter{UserID: "nobody"}, 0},
	} {
		var all []violations.Crossing
		for place := (violations.CrossingPlace{}); ; {
			page := must(w.Crossings(t.Context(), w.ours.ID, test.filter, place, 3))(t)
			all = append(all, page...)
			if len(page) < 3 {
				break
			}
			place = page[2].Place()
		}
		if len(all) != test.want {
			t.Errorf("%s: %d crossings in pages, want %d", name, len(all), test.want)
		}
		isSorted := slices.IsSortedFunc(all, func(a, b violations.Crossing) int { return b.At.Compare(a.At) })
		if !isSorted || slices.ContainsFunc(all, func(c violations.Crossing) bool { return c.Tenant != w.ours.ID }) {
			t.Errorf("%s: %+v, want ours, the latest first", name, all)
		}
	}
}

func TestCrossingsStayWhileTheirWindowLasts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC().Truncate(time.Second)
	window := func(end time.Duration) violations.Crossing {
		return crossing(w.ours.ID, now.Add(-300*day), func(c *violations.Crossing) {
			c.WindowStart, c.WindowEnd = now.Add(end-31*day), now.Add(end)
		})
	}
	w.cross(t, "a", window(-11*day), window(-9*day), window(time.Hour))
	kept := must(w.KeepViolations(t.Context(), now, violations.Retention{Details: 30 * day, Counts: 10 * day}))(t)
	if got := w.crossings(t, violations.CrossingFilter{}); len(got) != 2 || kept.RowsDropped != 1 {
		t.Errorf("%d crossings are left and %d rows dropped, want 2 and 1", len(got), kept.RowsDropped)
	}
}
