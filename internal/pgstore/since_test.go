package pgstore_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestAChangedLimitComesIntoForceLater(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*rules.Rule)
		later  bool
	}{
		"a rate":          {func(r *rules.Rule) { r.RatePerSecond = 11 }, true},
		"a burst":         {func(r *rules.Rule) { r.Burst = 51 }, true},
		"a description":   {func(r *rules.Rule) { r.Description = "new" }, false},
		"the unit shown":  {func(r *rules.Rule) { r.RateUnit = rules.PerHour }, false},
		"shadow mode":     {func(r *rules.Rule) { r.Mode = rules.ModeShadow }, false},
		"nothing":         {func(*rules.Rule) {}, false},
		"a failure mode":  {func(r *rules.Rule) { r.FailureMode = rules.FailClosed }, false},
		"being active":    {func(r *rules.Rule) { r.Active = false }, false},
		"a blocked route": {func(r *rules.Rule) { r.Action, r.RatePerSecond, r.Burst = rules.ActionBlock, 0, 0 }, true},
	}
	for _, clock := range []string{"and the clock goes on", "and the clock stepped back"} {
		t.Run(clock, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rule := w.ours.user
			if clock == "and the clock stepped back" {
				w.setBack(t)
				rule = must(w.Rule(t.Context(), w.ours.ID, rule.ID))(t)
			}
			for name, test := range tests {
				changed := rule
				test.change(&changed)
				changed = must(w.UpdateRule(t.Context(), changed))(t)
				if later := changed.InForceSince.After(rule.InForceSince); later != test.later {
					t.Errorf("%s: in force since %s, before since %s", name, changed.InForceSince, rule.InForceSince)
				}
				if follows := changed.Version == rule.Version+1; follows != (name != "nothing") {
					t.Errorf("%s: version %d follows %d", name, changed.Version, rule.Version)
				}
				back := changed
				back.RatePerSecond, back.RateUnit, back.Burst = 10, rules.PerSecond, 50
				back.Mode, back.Action, back.Active = rules.ModeEnforce, rules.ActionLimit, true
				rule = must(w.UpdateRule(t.Context(), back))(t)
			}
		})
	}
}

func TestEachLimitOfAUserIsLaterThanTheOneBefore(t *testing.T) {
	t.Parallel()
	for _, clock := range []string{"while the clock goes on", "after the clock stepped back"} {
		t.Run(clock, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, ours := t.Context(), w.ours.ID
			if clock == "after the clock stepped back" {
				w.setBack(t)
			}
			rule := must(w.Rule(ctx, ours, w.ours.user.ID))(t)
			read := func() rules.Override { return must(w.Overrides(ctx, ours, rule.ID, "", 1))(t)[0] }
			removed := func() time.Time {
				if err := w.RemoveOverride(ctx, ours, rule.ID, "42", rules.AnyVersion); err != nil {
					t.Fatal(err)
				}
				overrides := w.poll(t, nil).Overrides
				for _, o := range overrides {
					if o.TenantID == ours {
						return o.RemovedAt
					}
				}
				t.Fatal("the removed override left no trace")
				return time.Time{}
			}
			put := func(change func(*rules.Override)) time.Time {
				override := overrideOf(rule, "42")
				change(&override)
				return must(w.PutOverride(ctx, override, rules.AnyVersion))(t).InForceSince
			}
			raise := func() time.Time {
				rule.Burst++
				rule = must(w.UpdateRule(ctx, rule))(t)
				return rule.InForceSince
			}
			last := read().InForceSince
			later := func(name string, since time.Time) {
				t.Helper()
				if !since.After(last) {
					t.Errorf("%s: in force since %s, and the limit before since %s", name, since, last)
				}
				last = since
			}
			later("a higher burst", put(func(o *rules.Override) { o.Burst = 600 }))
			if since := put(func(o *rules.Override) {
				o.Burst, o.Reason, o.ExpiresAt = 600, "longer",
					tomorrow()
			}); !since.Equal(last) {
				t.Errorf("another reason and expiry put the same limit into force anew")
			}
			later("the removal", removed())
			later("the rule's edit after it", raise())
			later("the revival with the same limit", put(func(o *rules.Override) { o.Burst = 600 }))
			later("the second removal", removed())
			later("the second revival", put(func(*rules.Override) {}))
			if clock == "after the clock stepped back" {
				return // an expiry has passed or not, by the clock that there is now
			}
			exec(t, w.url, `UPDATE rate_limit_override SET expires_at = in_force_since + interval '1 microsecond'
				WHERE tenant_id = $1 AND user_id = '42'`, ours)
			later("the expiry, since when the rule's limit holds", read().ExpiresAt)
			later("the rule's edit after the expiry", raise())
			later("the revival after the expiry", put(func(*rules.Override) {}))
		})
	}
}

func TestAnOverrideThatWouldEndBeforeItBeginsIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	override := overrideOf(w.ours.user, "42")
	override.ExpiresAt = time.Now().Add(-time.Hour)
	var wrong rules.FieldErrors
	if _, err := w.PutOverride(t.Context(), override, rules.AnyVersion); !asFieldErrors(err, &wrong) ||
		wrong[0].Field != "expires_at" {
		t.Errorf("error is %v, want one of the field expires_at", err)
	}
}

func TestAnOverrideThatIsAboutToExpireCountsAsExpired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	override := overrideOf(w.ours.user, "42")
	override.ExpiresAt = time.Now().Add(30 * time.Second).Truncate(time.Microsecond) // other clocks may be past it
	must(w.PutOverride(t.Context(), override, rules.AnyVersion))(t)
	ended := override.ExpiresAt
	override.ExpiresAt = tomorrow()
	if revived := must(w.PutOverride(t.Context(), override, rules.AnyVersion))(t); !revived.InForceSince.After(ended) {
		t.Errorf("in force since %s, although other processes may have seen it end at %s", revived.InForceSince, ended)
	}
}

func TestAnOverrideIsLaterThanEveryVersionOfTheRuleCountsAsAfterTheOneBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours, rule := t.Context(), w.ours.ID, w.ours.user
	const version = 3_600_000_000 // as many microseconds are an hour
	exec(t, w.url, `UPDATE rate_limit_rule SET version = $2 WHERE tenant_id = $1 AND rule_id = $3`, ours,
		int64(version), rule.ID)
	must(w.PutOverride(ctx, overrideOf(rule, "42"), rules.AnyVersion))(t)
	before := time.Now()
	if err := w.RemoveOverride(ctx, ours, rule.ID, "42", rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if revived := must(w.PutOverride(ctx, overrideOf(rule, "42"), rules.AnyVersion))(t); revived.InForceSince.Before(
		before.Add(time.Hour - time.Minute)) {
		t.Errorf("in force since %s, which is not an hour after the removal at about %s", revived.InForceSince, before)
	}
	expiring := overrideOf(rule, "43")
	expiring.ExpiresAt = time.Now().Add(30 * time.Second).Truncate(time.Microsecond)
	must(w.PutOverride(ctx, expiring, rules.AnyVersion))(t)
	ended := expiring.ExpiresAt
	expiring.ExpiresAt = tomorrow()
	if revived := must(w.PutOverride(ctx, expiring, rules.AnyVersion))(t); !revived.InForceSince.After(
		ended.Add(time.Hour)) {
		t.Errorf("in force since %s, although the rule's limit counts as %s", revived.InForceSince,
			ended.Add(time.Hour))
	}
}
