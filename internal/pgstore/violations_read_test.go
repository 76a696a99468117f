package pgstore_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	w.record(t, at,
		func(*violations.Violation) {},
		func(v *violations.Violation) { v.Rule, v.Scope, v.UserID = 13, rules.ScopeGlobal, "7" },
		func(v *violations.Violation) { v.Plan, v.Mode = "pro", rules.ModeShadow },
		func(v *violations.Violation) { v.IP, v.Endpoint = netip.MustParseAddr("203.0.113.200"), "/api" },
		func(v *violations.Violation) {
			v.IP, v.Endpoint = netip.MustParseAddr("2001:db8::1"), "/api/search/all"
		},
		func(v *violations.Violation) { v.ID.At, v.LastAt = at.Add(-30*time.Minute), at.Add(-30*time.Minute) },
	)
	tests := map[string]struct {
		filter violations.Filter
		want   int
	}{
		"all":                      {violations.Filter{}, 6},
		"a rule":                   {violations.Filter{Rule: 13}, 1},
		"a rule without any":       {violations.Filter{Rule: 99}, 0},
		"a scope":                  {violations.Filter{Scope: rules.ScopeUser}, 5},
		"a mode":                   {violations.Filter{Mode: rules.ModeShadow}, 1},
		"a plan":                   {violations.Filter{Plan: "free"}, 5},
		"a user":                   {violations.Filter{UserID: "42"}, 5},
		"an address":               {violations.Filter{IP: netip.MustParsePrefix("203.0.113.200/32")}, 1},
		"a network":                {violations.Filter{IP: netip.MustParsePrefix("203.0.113.128/25")}, 1},
		"a network of IPv6":        {violations.Filter{IP: netip.MustParsePrefix("2001:db8::/32")}, 1},
		"an endpoint":              {violations.Filter{Endpoint: "/api/search"}, 4},
		"a beginning of endpoints": {violations.Filter{EndpointPrefix: "/api/s"}, 5},
		"a time":                   {violations.Filter{Since: at.Add(-30 * time.Minute), Until: at}, 1},
		"a time that ends as one was": {
			violations.Filter{Since: at.Add(-time.Hour), Until: at.Add(-30 * time.Minute)},
			0,
		},
		"a user and a rule": {violations.Filter{UserID: "42", Rule: 13}, 0},
		"a user and a mode": {violations.Filter{UserID: "42", Mode: rules.ModeShadow}, 1},
		"an address and an endpoint": {violations.Filter{
			IP:       netip.MustParsePrefix("203.0.113.200/32"),
			Endpoint: "/api",
		}, 1},
		"text that looks like a query": {violations.Filter{UserID: "' OR true --"}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			filter := test.filter
			if filter.Until.IsZero() {
				filter.Since, filter.Until = at.Add(-time.Hour), at.Add(time.Hour)
			}
			page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{}, 10))(t)
			if len(page.Violations) != test.want || page.Next != (violations.ID{}) {
				t.Errorf("%d rows, and more after %v; want %d", len(page.Violations), page.Next, test.want)
			}
			w.wantOurs(t, page.Violations)
			steps := violations.Steps{Since: filter.Since, Until: filter.Until, Step: time.Minute}
			var checks, rows int64
			for _, count := range must(w.ViolationsInSteps(t.Context(), w.ours.ID, &filter, steps))(t).Counts {
				checks += count.Checks
			}
			for _, v := range page.Violations {
				rows += v.Count
			}
			if checks != rows {
				t.Errorf("the steps count %d checks, the rows %d", checks, rows)
			}
			all := w.all(t, &filter)
			w.wantOurs(t, all)
			if len(all) != test.want {
				t.Errorf("%d rows are on the pages, want %d", len(all), test.want)
			}
		})
	}
}

func TestPagesHoldEachRowOnceWhileOthersArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	same := slices.Repeat([]func(*violations.Violation){func(*violations.Violation) {}}, 25) // all at one moment
	w.record(t, at, same...)
	filter := around(at)
	var seen []violations.ID
	for next := (violations.ID{}); ; {
		page := must(w.Violations(t.Context(), w.ours.ID, &filter, next, 10))(t)
		for _, v := range page.Violations {
			seen = append(seen, v.ID)
		}
		// newer: on no later page
		w.record(t, at.Add(time.Duration(len(seen))*time.Second), func(*violations.Violation) {})
		if next = page.Next; next == (violations.ID{}) {
			break
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d rows were on the pages, want 25", len(seen))
	}
	for i := 1; i < len(seen); i++ {
		if seen[i].At == seen[i-1].At && seen[i].Number >= seen[i-1].Number {
			t.Errorf("row %d is %v, after %v", i, seen[i], seen[i-1])
		}
	}
}

func TestAPageWithoutAnIndexSaysHowFarItLooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	exec(t, w.url,
		`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key, scope, mode,
			reason,
			key_pattern, rule_version, rate_per_second, burst_capacity, plan, cost, algorithm, limit_text)
		SELECT $1, $2::timestamptz + i * interval '1 millisecond', $2, 1, 12, '12:42', 'user', 'enforce',
			'limit_exceeded', 'global', 1, 1, 1,
			CASE WHEN i = 0 THEN 'rare' ELSE 'free' END, 1, '', ''
		FROM generate_series(0, 24999) AS i`, w.ours.ID, at)
	filter := around(at)
	filter.Plan = "rare"
	var found, pages int
	for next := (violations.ID{}); pages == 0 || next != (violations.ID{}); pages++ {
		page := must(w.Violations(t.Context(), w.ours.ID, &filter, next, 10))(t)
		found += len(page.Violations)
		if pages == 0 && !page.Next.At.Equal(at.Add(15*time.Second)) {
			t.Errorf("the first page looked back to %s, want %s", page.Next.At, at.Add(15*time.Second))
		}
		next = page.Next
	}
	if found != 1 || pages != 3 {
		t.Errorf("%d rows on %d pages, want 1 on 3", found, pages)
	}
	filter.Plan, filter.UserID = "free", "nobody"
	if page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{},
		10))(t); page.Next != (violations.ID{}) {
		t.Error("a user without violations has a second page")
	}
	filter = around(at)
	if all := w.all(t, &filter); len(all) != 25_000 {
		t.Errorf("%d rows are on the pages, want 25000", len(all))
	}
}

func (w *world) all(t *testing.T, filter *violations.Filter) (all []violations.Violation) {
	t.Helper()
	for next := (violations.ID{}); ; {
		page := must(w.Violations(t.Context(), w.ours.ID, filter, next, 1_000))(t)
		all, next = append(all, page.Violations...), page.Next
		if next == (violations.ID{}) {
			return all
		}
	}
}

func TestWhatElseHappenedInThatMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately().Add(10 * time.Second)
	nobody := func(v *violations.Violation) { v.UserID = "" }
	w.record(t, at, func(*violations.Violation) {}, nobody)
	w.record(t, at.Add(49*time.Second), func(v *violations.Violation) { v.Rule = 13 }, nobody)
	w.record(t, at.Add(51*time.Second), func(*violations.Violation) {})
	w.record(t, at.Add(5*time.Second),
		func(v *violations.Violation) { v.UserID, v.IP = "7", netip.MustParseAddr("203.0.113.10") })
	filter := around(at)
	for user, want := range map[string]int{"42": 1, "": 4} { // by the address, if there is no user
		filter.UserID = user
		var of violations.Violation
		for _, v := range w.all(t, &filter) {
			if v.ID.At.Equal(at) && v.UserID == user {
				of = v
			}
		}
		beside := must(w.ViolationsBeside(t.Context(), &of, 10))(t)
		w.wantOurs(t, beside)
		if user == "" {
			want = 3 // the user's two and nobody's other one
		}
		if len(beside) != want {
			t.Errorf("%d rows beside that of user %q, want %d: %+v", len(beside), user, want, beside)
		}
	}
	if _, err := w.Violation(t.Context(), w.ours.ID, violations.ID{At: at, Number: 1 << 40}); !errors.Is(err,
		rules.ErrNotFound) {
		t.Errorf("a violation that is not: %v", err)
	}
	theirs := must(w.Violations(t.Context(), w.theirs.ID, &filter, violations.ID{}, 1))(t)
	if _, err := w.Violation(t.Context(), w.ours.ID, theirs.Violations[0].ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a violation of the other tenant: %v", err)
	}
}

func TestArrivedAreThoseThatWereWrittenLately(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.record(t, lately().Add(-24*time.Hour), func(*violations.Violation) {}) // long ago, but written now
	exec(t, w.url, "UPDATE rate_limit_violation SET recorded_at = recorded_at - interval '2 hours'")
	w.record(t, lately().Add(-23*time.Hour), func(*violations.Violation) {},
		func(v *violations.Violation) { v.UserID = "7" })
	for user, want := range map[string]int{"": 2, "7": 1, "8": 0} {
		arrived, more, err := w.ViolationsArrived(t.Context(), w.ours.ID, &violations.Filter{UserID: user}, time.Time{},
			time.Hour, 100)
		if err != nil || more {
			t.Fatalf("more than 100 arrived: %t, %v", more, err)
		}
		w.wantOurs(t, arrived)
		if len(arrived) != want {
			t.Errorf("%d rows of user %q arrived, want %d", len(arrived), user, want)
		}
	}
}
