package ruleset

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

var diffNow = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestDiffSaysWhatToDo(t *testing.T) {
	t.Parallel()
	daily := limitRule(t, "user:{user_id}", 1000.0/86400, 50)
	daily.Plan, daily.Name, daily.RateUnit = "free", "daily", rules.PerDay
	with := func(r rules.Rule, change func(*rules.Rule)) rules.Rule { change(&r); return r }
	free, pro := rules.Plan{Name: "free"}, rules.Plan{Name: "pro"}
	override := ConfigOverride{Rule: daily.Identity(), Override: rules.Override{
		UserID: "42", RatePerSecond: 100, RateUnit: rules.PerSecond, Burst: 500, Reason: "migration week",
		ExpiresAt: diffNow.Add(time.Hour),
	}}
	expired := override
	expired.ExpiresAt = diffNow
	extended := override
	extended.ExpiresAt, extended.Reason = time.Time{}, "bought it"
	blocked := with(daily, func(r *rules.Rule) {
		r.Action, r.RatePerSecond, r.RateUnit, r.Burst = rules.ActionBlock, 0, rules.PerSecond, 0
	})
	one := func(r rules.Rule) Config { return Config{Plans: []rules.Plan{free}, Rules: []rules.Rule{r}} }
	withOverride := func(o ConfigOverride) Config {
		return Config{Plans: []rules.Plan{free}, Rules: []rules.Rule{daily}, Overrides: []ConfigOverride{o}}
	}

	tests := map[string]struct {
		current, desired Config
		prune            bool
		want             string
	}{
		"equal configurations need nothing": {current: withOverride(override), desired: withOverride(override)},
		"ids, versions and times do not count": {
			current: one(with(daily, func(r *rules.Rule) {
				r.ID, r.TenantID, r.Version, r.CreatedAt = 7, 1, 3,
					diffNow
			})),
			desired: one(daily),
		},
		"the same expiry in another zone is equal": {
			current: withOverride(override),
			desired: withOverride(func() ConfigOverride {
				o := override
				o.ExpiresAt = o.ExpiresAt.In(time.FixedZone("", 7200))
				return o
			}()),
		},
		"what is absent is added, in order of names": {
			desired: Config{Plans: []rules.Plan{pro, {Name: "free", Description: "for all"}}, Rules: []rules.Rule{
				daily, limitRule(t, "global", 5, 10),
				with(limitRule(t, "ip:{ip}", 0, 0),
					func(r *rules.Rule) { r.Action, r.Mode, r.Active = rules.ActionBlock, rules.ModeShadow, false }),
				with(limitRule(t, "endpoint:/x", 1, 1), func(r *rules.Rule) { r.FailureMode = rules.FailClosed }),
			}, Overrides: []ConfigOverride{override}},
			want: `+ plan free: "for all"
+ plan pro
+ rule endpoint:/x: 1 per second, bursts to 1, failure_mode closed
+ rule global: 5 per second, bursts to 10
+ rule ip:{ip}: block, mode shadow, not active
+ rule user:{user_id} [free] daily: 1,000 per day, bursts to 50
+ override for user 42 of rule user:{user_id} [free] daily: 100 per second, bursts to 500, until 2026-06-01T13:00:00Z (migration week)
`,
		},
		"each changed field is shown": {
			current: one(daily),
			desired: one(with(daily, func(r *rules.Rule) {
				r.RatePerSecond, r.RateUnit, r.Burst, r.Mode, r.FailureMode = 20, rules.PerSecond, 100,
					rules.ModeShadow, rules.FailOpen
				r.Active, r.Description = false, "a\nb"
			})),
			want: `~ rule user:{user_id} [free] daily: rate 1,000 per day → 20 per second, burst 50 → 100, mode enforce → shadow, failure_mode the tenant's → open, is_active true → false, description "" → "a\nb"` + "\n",
		},
		"a unit alone is a change": {
			current: one(with(daily, func(r *rules.Rule) { r.RatePerSecond, r.RateUnit = 1, rules.PerSecond })),
			desired: one(with(daily, func(r *rules.Rule) { r.RatePerSecond, r.RateUnit = 1, rules.PerMinute })),
			want:    "~ rule user:{user_id} [free] daily: rate 1 per second → 60 per minute\n",
		},
		"a plan's description is a change": {
			current: Config{Plans: []rules.Plan{free}},
			desired: Config{Plans: []rules.Plan{{Name: "free", Description: "x"}}},
			want:    `~ plan free: description "" → "x"` + "\n",
		},
		"an override is changed": {
			current: withOverride(override), desired: withOverride(extended),
			want: `~ override for user 42 of rule user:{user_id} [free] daily: reason "migration week" → "bought it", expires_at 2026-06-01T13:00:00Z → never` + "\n",
		},
		"what the file does not have is kept": {
			current: withOverride(override),
			want: `= plan free: kept, though not in the file
= rule user:{user_id} [free] daily: kept, though not in the file
= override for user 42 of rule user:{user_id} [free] daily: kept, though not in the file
`,
		},
		"what the file does not have is pruned": {
			current: withOverride(override), prune: true,
			want: `- plan free
- rule user:{user_id} [free] daily
- override for user 42 of rule user:{user_id} [free] daily
`,
		},
		"an override that is over is left out": {
			current: one(daily), desired: withOverride(expired),
			want: "= override for user 42 of rule user:{user_id} [free] daily: left out, as it expired at " +
				"2026-06-01T12:00:00Z\n",
		},
		"an override that is over counts as absent": {
			current: withOverride(expired), desired: withOverride(extended),
			want: "+ override for user 42 of rule user:{user_id} [free] daily: 100 per second, bursts to 500 (bought " +
				"it)\n",
		},
		"a rule with an override becomes a block": {
			current: withOverride(override),
			desired: one(blocked),
			want: `~ rule user:{user_id} [free] daily: rate 1,000 per day → none, burst 50 → 0, action limit → block
= override for user 42 of rule user:{user_id} [free] daily: kept, though not in the file
`,
		},
		"the overrides of a rule that blocks rest, and are not pruned": { // an export leaves them out
			current: Config{
				Plans: []rules.Plan{free}, Rules: []rules.Rule{blocked},
				Overrides: []ConfigOverride{override},
			},
			desired: one(blocked), prune: true,
			want: "= override for user 42 of rule user:{user_id} [free] daily: kept, though not in the file\n",
		},
		"a rule that limits again has its resting overrides pruned": {
			current: Config{
				Plans: []rules.Plan{free}, Rules: []rules.Rule{blocked},
				Overrides: []ConfigOverride{override},
			},
			desired: one(daily), prune: true,
			want: `~ rule user:{user_id} [free] daily: rate none → 1,000 per day, burst 0 → 50, action block → limit
- override for user 42 of rule user:{user_id} [free] daily
`,
		},
		"a pruned rule takes its resting overrides along": {
			current: Config{
				Plans: []rules.Plan{free}, Rules: []rules.Rule{blocked},
				Overrides: []ConfigOverride{override},
			},
			desired: Config{Plans: []rules.Plan{free}}, prune: true,
			want: `- rule user:{user_id} [free] daily
- override for user 42 of rule user:{user_id} [free] daily
`,
		},
		"a plan in use is no difference": {
			current: Config{Plans: []rules.Plan{{Name: "free", InUse: "it is the tenant's default"}}},
			desired: Config{Plans: []rules.Plan{free}}, prune: true,
		},
		"a plan in use that the file does not have is kept without pruning": {
			current: Config{Plans: []rules.Plan{{Name: "free", InUse: "it is the tenant's default"}}},
			want:    "= plan free: kept, though not in the file\n",
		},
		"removed rows count as absent": {
			current: Config{
				Plans:     []rules.Plan{{Name: "free", Removed: true}},
				Rules:     []rules.Rule{with(daily, func(r *rules.Rule) { r.Removed = true })},
				Overrides: []ConfigOverride{func() ConfigOverride { o := override; o.RemovedAt = diffNow; return o }()},
			},
			prune: true,
		},
		"an odd user id breaks no line": {
			current: one(daily),
			desired: withOverride(func() ConfigOverride { o := extended; o.UserID = "4\n2"; return o }()),
			want:    `+ override for user "4\n2" of rule user:{user_id} [free] daily: 100 per second, bursts to 500 (bought it)` + "\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes, err := Diff(test.current, test.desired, DiffOptions{Prune: test.prune, Now: diffNow})
			if err != nil {
				t.Fatal(err)
			}
			if got := changesText(t, changes); got != test.want {
				t.Errorf("changes:\n got %s\nwant %s", got, test.want)
			}
			if want := test.want == "" || strings.HasPrefix(test.want, "="); changes.Empty() != want {
				t.Errorf("changes are empty: %v, want %v", changes.Empty(), want)
			}
		})
	}
}

func TestDiffRefusesAResultThatDoesNotHoldTogether(t *testing.T) {
	t.Parallel()
	rule := limitRule(t, "user:{user_id}", 1, 1)
	rule.Plan = "old"
	block := limitRule(t, "user:{user_id}", 0, 0)
	block.Action = rules.ActionBlock
	override := ConfigOverride{Rule: rule.Identity(), Override: rules.Override{UserID: "42"}}
	onBlock := ConfigOverride{Rule: block.Identity(), Override: rules.Override{UserID: "42"}}
	old := Config{Plans: []rules.Plan{{Name: "old"}}, Rules: []rules.Rule{rule}}
	requests, tokens := limitRule(t, "ip:{ip}", 1, 1), limitRule(t, "ip:{ip}", 1, 1)
	tokens.Meter = "tokens"
	adapting := make([]rules.Rule, rules.MaxAdapting+1)
	for i := range adapting {
		adapting[i] = limitRule(t, "user:"+strconv.Itoa(i), 1, 1)
		adapting[i].Adapt = rules.Adapt{Backend: "search", FloorPercent: 20, ErrorPercent: 1}
	}
	tests := map[string]struct {
		current, desired Config
		prune            bool
		want             string
	}{
		"a plan that a desired rule uses is not pruned": {
			old,
			Config{Rules: []rules.Rule{rule}},
			true,
			"plan old cannot be removed: rule user:{user_id} [old] uses it",
		},
		"the tenant's default plan is not pruned": {
			Config{Plans: []rules.Plan{{Name: "free", InUse: "it is the tenant's default"}}},
			Config{},
			true,
			"plan free cannot be removed: it is the tenant's default",
		},
		"a plan with users is not pruned": {
			Config{Plans: []rules.Plan{{Name: "pro", InUse: "12 users are on it"}, {Name: "unused"}}},
			Config{},
			true,
			"plan pro cannot be removed: 12 users are on it",
		},
		"too many rules have one pattern and plan": {
			old,
			Config{Rules: alike(t, "old", rules.MaxRulesPerPattern+2)},
			false,
			"more than 64 rules have the pattern ip:{ip} [old]",
		},
		"kept rules count": {
			Config{Rules: alike(t, "", rules.MaxRulesPerPattern+1)[1:]},
			Config{Rules: alike(t, "", 1)},
			false,
			"more than 64 rules have the pattern ip:{ip}",
		},
		"a rule needs its plan": {
			Config{}, Config{Rules: []rules.Rule{rule}}, false, "rule user:{user_id} [old]: there is no plan old",
		},
		"a rule keeps its meter": {
			Config{Rules: []rules.Rule{requests}},
			Config{Rules: []rules.Rule{tokens}},
			false,
			"rule ip:{ip}: meter: must stay requests: the buckets of a rule count one thing. Make another rule for " +
				"tokens",
		},
		"too many rules adapt": {
			Config{Rules: adapting[1:]},
			Config{Rules: adapting[:1]},
			false,
			"more than 100 rules adapt",
		},
		"an override needs its rule": {
			Config{},
			Config{Overrides: []ConfigOverride{override}},
			false,
			"override for user 42 of rule user:{user_id} [old]: there is no such rule",
		},
		"an override's rule is not pruned": {
			old,
			Config{Overrides: []ConfigOverride{override}},
			true,
			"override for user 42 of rule user:{user_id} [old]: there is no such rule",
		},
		"a kept rule that blocks has nothing to override": {
			Config{Rules: []rules.Rule{block}},
			Config{Overrides: []ConfigOverride{onBlock}},
			false,
			"override for user 42 of rule user:{user_id}: a block rule has no limit to override",
		},
		"all culprits are named": {
			Config{},
			Config{Rules: []rules.Rule{rule}, Overrides: []ConfigOverride{onBlock}},
			false,
			"rule user:{user_id} [old]: there is no plan old\noverride for user 42 of rule user:{user_id}: there is " +
				"no such rule",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Diff(test.current, test.desired, DiffOptions{Prune: test.prune, Now: diffNow})
			if err == nil || err.Error() != test.want {
				t.Errorf("error:\n got %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestDiffTakesAsManyRulesOfAPatternAsThereMayBe(t *testing.T) {
	t.Parallel()
	all, old := alike(t, "", rules.MaxRulesPerPattern), alike(t, "old", rules.MaxRulesPerPattern)
	desired := Config{Plans: []rules.Plan{{Name: "old"}}, Rules: append(all, old...)}
	if _, err := Diff(Config{}, desired, DiffOptions{Now: diffNow}); err != nil {
		t.Error(err)
	}
	if _, err := Diff(desired, desired, DiffOptions{Now: diffNow}); err != nil {
		t.Error(err)
	}
}

func alike(t *testing.T, plan string, n int) []rules.Rule {
	t.Helper()
	same := make([]rules.Rule, n)
	for i := range same {
		same[i] = limitRule(t, "ip:{ip}", 1, 1)
		same[i].Plan, same[i].Name = plan, strconv.Itoa(i)
	}
	return same
}

func TestDiffDoesNotDependOnTheOrderOfRows(t *testing.T) {
	t.Parallel()
	var current, desired Config
	for _, id := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		current.Rules = append(current.Rules, limitRule(t, "user:"+id, 1, 1))
		desired.Rules = append(desired.Rules, limitRule(t, "endpoint:"+id, 1, 1))
	}
	want := ""
	for range 20 {
		for _, rows := range [][]rules.Rule{current.Rules, desired.Rules} {
			rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		}
		changes, err := Diff(current, desired, DiffOptions{Prune: true, Now: diffNow})
		if err != nil {
			t.Fatal(err)
		}
		got := changesText(t, changes)
		if want == "" {
			want = got
		}
		if got != want || strings.Count(got, "\n") != 52 {
			t.Fatalf("changes depend on the order of rows:\n%s\n%s", want, got)
		}
	}
}

func changesText(t *testing.T, changes Changes) string {
	t.Helper()
	var text bytes.Buffer
	if err := changes.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func limitRule(t *testing.T, text string, rate float64, burst int64) rules.Rule {
	t.Helper()
	return rules.Rule{
		Pattern: pattern(t, text), RatePerSecond: rate, RateUnit: rules.PerSecond, Burst: burst,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
	}
}
