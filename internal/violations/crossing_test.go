package violations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

var quotaRule = func() *rules.Rule {
	rule := ruleOf(15, "user:{user_id}", rules.ModeEnforce)
	rule.Name, rule.Algorithm, rule.Burst = "hourly", rules.FixedWindow, 100
	rule.Window, rule.NotifyAt = rules.Window{Length: time.Hour}, []int{80, 100}
	return rule
}()

func used(tenant rules.TenantID, user string, tokens float64, at time.Time) *violations.Use {
	return &violations.Use{
		Tenant: tenant, Rule: quotaRule, Mode: rules.ModeEnforce, Subject: user, Limit: quotaRule.Limit(),
		Used: violations.Tokens(tokens * float64(violations.Token)), Taken: violations.Token, At: at.UnixMicro(),
	}
}

func noted(crossings []violations.Crossing) (texts []string) {
	for i := range crossings {
		c := &crossings[i]
		texts = append(texts, fmt.Sprintf("%s %d %g %v", c.UserID, c.Share, c.Used.Float(), c.At.Sub(noon)))
	}
	return texts
}

func wantNoted(t *testing.T, crossings []violations.Crossing, want ...string) {
	t.Helper()
	if got := noted(crossings); !slices.Equal(got, want) {
		t.Errorf("noted %q, want %q", got, want)
	}
}

func TestACrossingIsNotedOncePerWindowAndShare(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	for i := range 100 {
		r.Note(used(1, "42", float64(i+1), noon.Add(time.Duration(i)*time.Second)))
		if i%9 == 0 {
			flush(t, r)
		}
	}
	denied := used(1, "42", 100, noon.Add(2*time.Minute))
	denied.Taken = 0
	r.Note(denied)
	r.Note(used(1, "42", 79.999999, noon.Add(time.Hour)))                         // the next window
	r.Note(used(1, "42", 100, noon.Add(time.Hour+time.Second)))                   // by one large check
	r.Note(used(1, "7", 80, noon.Add(time.Minute)))                               // another user
	r.Note(&violations.Use{Rule: userRule, Used: 1000, Limit: quotaRule.Limit()}) // a rule without shares
	flush(t, r)
	slices.SortStableFunc(l.crossings,
		func(a, b violations.Crossing) int { return strings.Compare(a.UserID, b.UserID) })
	wantNoted(t, l.crossings, "42 80 80 1m19s", "42 100 100 1m39s", "42 80 100 1h0m1s", "42 100 100 1h0m1s",
		"7 80 80 1m0s")
	want := violations.Crossing{
		Tenant: 1, Rule: 15, Subject: "42", WindowStart: noon, WindowEnd: noon.Add(time.Hour), Share: 80,
		At:   noon.Add(79 * time.Second),
		Used: 80 * violations.Token, Burst: 100, Mode: rules.ModeEnforce, RuleName: "hourly", Pattern: "user:{user_id}",
		UserID: "42",
	}
	if got := l.crossings[0]; got != want {
		t.Errorf("the crossing is\n%+v, want\n%+v", got, want)
	}
}

func TestALostCrossingIsNotedByALaterCheck(t *testing.T) {
	t.Parallel()
	l := newLedger()
	killed := violations.NewRecorder(l, violations.Options{})
	killed.Note(used(1, "42", 85, noon))
	r := violations.NewRecorder(l, violations.Options{})
	for i := range 3 {
		r.Note(used(1, "42", 90, noon.Add(time.Duration(i)*time.Minute)))
		flush(t, r)
	}
	wantNoted(t, l.crossings, "42 80 90 0s")
}

func TestTheCheckThatCrossesIsNotedAfterALaterOne(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	r.Note(used(1, "42", 81, noon))
	r.Note(used(1, "42", 80, noon))
	r.Note(used(1, "42", 82, noon))
	flush(t, r)
	wantNoted(t, l.crossings, "42 80 81 0s", "42 80 80 0s") // the store keeps the latter
}

func TestTenantsShareTheRoomOfCrossings(t *testing.T) {
	t.Parallel()
	const users = 20_000
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{MaxBytes: 1 << 20})
	for i := range users {
		r.Note(used(1, fmt.Sprint(i), 80, noon))
	}
	if stats := r.Stats(); stats.Bytes > 1<<19 {
		t.Errorf("%d bytes are in memory, want at most %d", stats.Bytes, 1<<19)
	}
	const quiet = 16
	for i := range quiet {
		r.Note(used(2, fmt.Sprint(i), 80, noon))
	}
	flush(t, r)
	if n := len(slices.DeleteFunc(slices.Clone(l.crossings),
		func(c violations.Crossing) bool { return c.Tenant == 1 })); n != quiet {
		t.Errorf("%d crossings of the other tenant are noted, want %d", n, quiet)
	}
	if n := len(l.crossings) - quiet; n == 0 || n > users/2 {
		t.Errorf("%d crossings of the greedy tenant are noted at once, want some and not most", n)
	}
	for range 100 {
		for i := range users {
			r.Note(used(1, fmt.Sprint(i), 90, noon.Add(time.Minute)))
		}
		flush(t, r)
	}
	before := len(l.crossings)
	for i := range users {
		r.Note(used(1, fmt.Sprint(i), 90, noon.Add(time.Minute)))
	}
	flush(t, r)
	if len(l.crossings) != before {
		t.Errorf("%d crossings are noted again and again", len(l.crossings)-before)
	}
	// The cache has no memory for this crossing, so the check that crosses must note it.
	r.Note(used(1, fmt.Sprint(users), 80.5, noon))
	r.Note(used(1, fmt.Sprint(users), 81.5, noon))
	flush(t, r)
	wantNoted(t, l.crossings[before:], fmt.Sprintf("%d 80 80.5 0s", users))
}

func TestARefusedCrossingDoesNotKeepOthersBack(t *testing.T) {
	t.Parallel()
	l := newLedger()
	l.fail = func(b *violations.Batch) (before, after error) {
		for i := range b.Crossings {
			if b.Crossings[i].Subject == "bad" {
				return violations.ErrRefused, nil
			}
		}
		return nil, nil
	}
	r := violations.NewRecorder(l, violations.Options{})
	users := []string{"1", "2", "bad", "3", "4"}
	for _, user := range users {
		r.Note(used(1, user, 80, noon))
	}
	flush(t, r)
	if len(l.crossings) != len(users)-1 {
		t.Errorf("noted %q, want all but the refused one", noted(l.crossings))
	}
}

func TestNotingCostsNoAllocation(t *testing.T) {
	r := violations.NewRecorder(newLedger(), violations.Options{})
	below, above := used(1, "42", 79, noon), used(1, "42", 99, noon)
	without := &violations.Use{Tenant: 1, Rule: userRule, Subject: "42"}
	r.Note(above)
	if n := testing.AllocsPerRun(100, func() { r.Note(below); r.Note(above); r.Note(without) }); n != 0 {
		t.Errorf("three checks allocate %v times, want 0", n)
	}
}
