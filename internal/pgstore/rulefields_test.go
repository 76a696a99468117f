package pgstore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func drawRule(t *rapid.T, tenant rules.TenantID) rules.Rule {
	draw := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	seconds := func(most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(1, int64(most/time.Second)).Draw(t, "seconds")) * time.Second
	}
	rule := rules.Standard()
	rule.TenantID = tenant
	rule.Pattern, _ = rules.ParsePattern("global")
	rule.Active, rule.NeverLeased = rapid.Bool().Draw(t, "active"), rapid.Bool().Draw(t, "never leased")
	rule.FailureMode = rules.FailureMode(draw("failure mode", "", "local", "open", "closed"))
	rule.RateUnit = rules.RateUnit(draw("unit", "second", "minute", "hour", "day"))
	rule.Description = draw("description", "", "null", "a \"b\"\nc", "ünï")
	rule.Action = rules.Action(draw("action", "limit", "limit", "limit", "block", "bypass"))
	if rapid.Bool().Draw(t, "ends") {
		rule.ExpiresAt = time.UnixMicro(rapid.Int64Range(1e15, 4e15).Draw(t, "expires at")).UTC()
	}
	if rule.Action != rules.ActionBypass {
		rule.Mode = rules.Mode(draw("mode", "enforce", "shadow"))
	}
	if rule.Action != rules.ActionLimit {
		return rule
	}
	rule.Meter = rules.Meter(draw("meter", "", "usd", "input_tokens"))
	rule.Burst = rapid.Int64Range(1, rules.MaxListed).Draw(t, "burst")
	rule.Algorithm = rapid.SampledFrom(rules.Algorithms).Draw(t, "algorithm")
	rule.ChargedAfter = rule.Algorithm.CanBeChargedAfter() && rapid.Bool().Draw(t, "charged after")
	switch {
	case rule.Algorithm.HasRate():
		rule.RatePerSecond = rapid.Float64Range(1, rules.MaxRate).Draw(t, "rate")
		if rapid.Bool().Draw(t, "adapts") {
			rule.Adapt = rules.Adapt{
				Backend: draw("backend", "a", "null", "1"), FloorPercent: rapid.IntRange(1, 99).Draw(t, "floor"),
				P99: time.Duration(rapid.IntRange(0, 60000).Draw(t, "p99")) * time.Millisecond, ErrorPercent: 0.5,
			}
		}
		if rule.Algorithm == rules.TokenBucket && rapid.Bool().Draw(t, "in steps") {
			rule.RefillInterval = seconds(rules.MaxWindow)
		}
	case rule.Algorithm == rules.Concurrency:
		rule.MaxHold = seconds(rules.MaxHold)
	case rule.Algorithm == rules.FixedWindow && rapid.Bool().Draw(t, "of the calendar"):
		rule.Window = rules.Window{
			Calendar: rules.CalendarUnit(draw("calendar", "week", "month")), Zone: draw("zone", "", "Europe/Berlin"),
			StartDay: rapid.IntRange(0, 7).Draw(t, "start day"),
		}
		rule.NotifyAt = rapid.SampledFrom([][]int{nil, {100}, {80, 100}}).Draw(t, "notify at")
	default:
		rule.Window.Length = seconds(rules.MaxWindow)
	}
	return rule
}

func TestARuleIsTheSameInJSONInAFileInTheDatabaseAndInTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		rule := drawRule(rt, w.ours.ID)
		number++
		rule.Name = fmt.Sprint(number)
		if wrong := rule.Validate(nil); len(wrong) > 0 {
			rt.Fatalf("%+v: %v", rule, wrong)
		}
		same := func(where string, got *rules.Rule) {
			if !got.HasSameFields(&rule) {
				rt.Fatalf("%s it is\n%+v, want\n%+v", where, got.Fields(), rule.Fields())
			}
		}
		text := must(json.Marshal(rule.Fields()))(t)
		fromJSON := rules.Standard()
		if wrong := fromJSON.Patch(text); len(wrong) > 0 {
			rt.Fatalf("%s: %v", text, wrong)
		}
		same("in JSON", &fromJSON)

		var file bytes.Buffer
		if err := ruleset.Encode(&file, ruleset.Config{Rules: []rules.Rule{rule}}); err != nil {
			rt.Fatal(err)
		}
		same("in a file", &must(ruleset.Decode(&file, "", nil))(t).Rules[0])

		since := w.latest(t)
		created := must(w.CreateRule(t.Context(), rule))(t)
		same("created", &created)
		read := must(w.Rule(t.Context(), w.ours.ID, created.ID))(t)
		same("in the database", &read)
		_, entries := w.written(t, w.ours.ID, since)
		image := rules.Standard()
		if wrong := image.Set(entries[0].After); len(wrong) > 0 {
			rt.Fatalf("%s: %v", entries[0].After, wrong)
		}
		same("in the audit log", &image)
		if err := w.RemoveRule(t.Context(), w.ours.ID, created.ID, rules.AnyVersion); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestAWriteKeepsTheFieldsThatANewerReleaseKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := limit(t, w.ours.ID, "global", "", "newer")
	rule.RefillInterval = time.Second
	rule = must(w.CreateRule(t.Context(), rule))(t)
	exec(t, w.url, `UPDATE rate_limit_rule SET parameters = parameters || '{"newer": 1}' WHERE rule_id = $1`, rule.ID)
	rule.RefillInterval, rule.NeverLeased = 0, true
	rule = must(w.UpdateRule(t.Context(), rule))(t)
	stored := lines(t, connect(t, w.url), `SELECT parameters FROM rate_limit_rule WHERE rule_id = $1`, rule.ID)
	if stored[0] != `{"lease": "never", "newer": 1}` {
		t.Errorf("stored as %s", stored)
	}
}
