package pgstore_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestDenialsOfAUserAreExactWhereCountsNameTheUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, hour := w.ours.ID, time.Now().UTC().Truncate(time.Hour).Add(-2*time.Hour)
	ofAll := must(w.CreateRule(t.Context(), limit(t, ours, "global", "", "")))(t)
	number := int64(0)
	write := func(at time.Time, rule rules.RuleID, subject, user string, detailed, dropped int64) {
		v := violation(ours, at)
		v.Rule, v.Subject, v.UserID, v.Count = rule, subject, user, detailed
		tally := violations.Tally{
			Tenant: ours, Rule: rule, Minute: at.Truncate(time.Minute), Subject: subject, Denied: detailed + dropped,
			DetailDropped: dropped,
			Details:       []*violations.Violation{&v},
		}
		number++
		if err := w.WriteViolations(t.Context(),
			&violations.Batch{Writer: t.Name(), Number: number, Tallies: []violations.Tally{tally}}); err != nil {
			t.Fatal(err)
		}
	}
	write(hour, w.ours.user.ID, "42", "42", 2, 98)
	write(hour.Add(59*time.Minute), w.ours.user.ID, "42", "42", 3, 7)
	write(hour.Add(time.Hour), w.ours.user.ID, "42", "42", 1, 0)
	write(hour, ofAll.ID, "", "42", 5, 90)
	write(hour, w.ours.user.ID, "7", "7", 1, 1000)
	get := func(until time.Time) []violations.UserDenials {
		return must(w.DenialsOfUser(t.Context(), ours, "42", hour, until, 10))(t)
	}
	later := violations.UserDenials{
		Hour: hour.Add(time.Hour), Rule: w.ours.user.ID, Mode: rules.ModeEnforce, Denied: 1,
		Exact: true,
	}
	want := []violations.UserDenials{
		later,
		{Hour: hour, Rule: w.ours.user.ID, Mode: rules.ModeEnforce, Denied: 110, Exact: true},
		{Hour: hour, Rule: ofAll.ID, Mode: rules.ModeEnforce, Denied: 5},
	}
	if got := get(hour.Add(2 * time.Hour)); !reflect.DeepEqual(got, want) {
		t.Errorf("the denials are %+v, want %+v", got, want)
	}
	if got := get(hour.Add(time.Hour)); !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("the denials of the first hour are %+v, want %+v", got, want[1:])
	}
	w.LookAtTop(2)
	if got := get(hour.Add(2 * time.Hour)); len(got) == 0 || got[0] != later || len(got) > 1 && got[1].Exact {
		t.Errorf("looking at two counts found %+v", got)
	}
}

func TestABusyNeighbourTakesNothingFromAStory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hour, third := time.Now().UTC().Truncate(time.Hour).Add(-2*time.Hour), w.found(t, "third")
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, $3::timestamptz + make_interval(mins => 1 + n % 50), $2, CASE WHEN n <= 50 THEN '42'
			ELSE n::text END, false, 1, 0
		FROM generate_series(1, 50000) AS n`, third.ID, third.user.ID, hour)
	v := violation(third.ID, hour.Add(time.Minute))
	v.Rule, v.Subject, v.UserID, v.Count = third.user.ID, "42", "42", 1
	tally := violations.Tally{
		Tenant: third.ID, Rule: v.Rule, Minute: hour.Add(time.Minute), Subject: "42", Denied: 1,
		Details: []*violations.Violation{&v},
	}
	if err := w.WriteViolations(t.Context(),
		&violations.Batch{Writer: "third", Number: 1, Tallies: []violations.Tally{tally}}); err != nil {
		t.Fatal(err)
	}
	w.deny(t, w.ours.user, "42", hour, 7)
	w.LookAtTop(3)
	got := must(w.DenialsOfUser(t.Context(), w.ours.ID, "42", hour, hour.Add(time.Hour), 10))(t)
	want := []violations.UserDenials{{
		Hour: hour, Rule: w.ours.user.ID, Mode: rules.ModeEnforce, Denied: 7,
		Exact: true,
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the denials are %+v, want %+v", got, want)
	}
}

func TestTheStoryOfAUserHasPlansOverridesAndRulesOfTheUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.assign(t, w.ours.ID, "free", "42", "7")
	if err := w.RemoveOverride(t.Context(), w.ours.ID, w.ours.user.ID, "42", rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	block := must(w.CreateRule(t.Context(), limit(t, w.ours.ID, "user:42", "", "")))(t)
	if err := w.RemoveRule(t.Context(), w.ours.ID, block.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	must(w.CreateRule(t.Context(), limit(t, w.ours.ID, "user:4", "", "")))(t)
	all := must(w.UserStory(t.Context(), w.ours.ID, "42", time.Time{}, auth.LogCursor{}, 10))(t)
	var got []string
	for _, entry := range all {
		got = append(got, entry.Object.Kind+" "+string(entry.Action))
	}
	if want := []string{
		"rule remove", "rule create", "override remove", "user update", "user create",
		"override create",
	}; !reflect.DeepEqual(got, want) {
		t.Fatalf("the story is %v, want %v", got, want)
	}
	before := auth.LogCursor{At: all[0].At, ID: int64(all[0].ID)}
	if rest := must(w.UserStory(t.Context(), w.ours.ID, "42", time.Time{}, before, 10))(t); len(rest) != 5 ||
		rest[0].ID != all[1].ID {
		t.Errorf("before the latest entry there is %+v", rest)
	}
	if first := must(w.UserStory(t.Context(), w.ours.ID, "42", time.Time{}, auth.LogCursor{},
		1))(t); len(first) != 1 || first[0].ID != all[0].ID {
		t.Errorf("the latest entry is %+v", first)
	}
}
