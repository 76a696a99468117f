package ruleset

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/rules"
)

const example = `plans:
  - name: free
  - name: pro
    description: for teams
rules:
  - key_pattern: global
    action: block
    is_active: false
  - key_pattern: user:{user_id}
    rate: 10/second
    burst_capacity: 50
    mode: shadow
    failure_mode: closed
    lease: never
    description: |-
      two
      lines
  - key_pattern: user:{user_id}
    name: daily
    plan: free
    rate: 1000/day
    burst_capacity: 50
overrides:
  - rule: {key_pattern: 'user:{user_id}', name: daily, plan: free}
    user_id: "42"
    rate: 100/second
    burst_capacity: 500
    reason: migration week
    expires_at: 2027-01-31T00:00:00Z
`

func exampleConfig(t *testing.T) Config {
	t.Helper()
	usual := rules.Rule{
		RateUnit: rules.PerSecond, Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce,
		Action: rules.ActionLimit, Active: true,
	}
	block, shadow, daily := usual, usual, usual
	block.Pattern, block.Action, block.Active = pattern(t, "global"), rules.ActionBlock, false
	shadow.Pattern, shadow.RatePerSecond, shadow.Burst = pattern(t, "user:{user_id}"), 10, 50
	shadow.Mode, shadow.FailureMode, shadow.Description, shadow.NeverLeased = rules.ModeShadow, rules.FailClosed,
		"two\nlines", true
	daily.Pattern, daily.Name, daily.Plan = shadow.Pattern, "daily", "free"
	daily.RatePerSecond, daily.RateUnit, daily.Burst = 1000.0/86400, rules.PerDay, 50
	return Config{
		Plans: []rules.Plan{{Name: "free"}, {Name: "pro", Description: "for teams"}},
		Rules: []rules.Rule{block, shadow, daily},
		Overrides: []ConfigOverride{{Rule: daily.Identity(), Override: rules.Override{
			UserID: "42", RatePerSecond: 100, RateUnit: rules.PerSecond, Burst: 500, Reason: "migration week",
			ExpiresAt: time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC),
		}}},
	}
}

func TestAFileIsReadAsWhatItSays(t *testing.T) {
	t.Parallel()
	if got, want := decode(t, example), exampleConfig(t); !reflect.DeepEqual(got, want) {
		t.Errorf("the example is read as\n %+v, want\n %+v", got, want)
	}
}

func TestAConfigurationIsWrittenTidily(t *testing.T) {
	t.Parallel()
	config := exampleConfig(t)
	config.Plans[0], config.Plans[1] = config.Plans[1], config.Plans[0]
	config.Rules[0], config.Rules[2] = config.Rules[2], config.Rules[0]
	if got := encode(t, config); got != example {
		t.Errorf("the example is written as\n%s\nwant\n%s", got, example)
	}
	if got, want := encode(t, Config{}), "plans: []\nrules: []\n"; got != want {
		t.Errorf("nothing is written as\n%s\nwant\n%s", got, want)
	}
}

func TestAnOverrideOfARuleThatBecameABlockIsNotWritten(t *testing.T) {
	t.Parallel()
	config := exampleConfig(t)
	config.Rules[2].Action, config.Rules[2].RatePerSecond, config.Rules[2].Burst = rules.ActionBlock, 0, 0
	if got := decode(t, encode(t, config)); len(got.Overrides) != 0 || len(got.Rules) != 3 {
		t.Errorf("written and read back: %+v, want three rules and no override", got)
	}
}

func TestOtherWaysToSayTheSame(t *testing.T) {
	t.Parallel()
	const limit = "burst_capacity: 1\n"
	tests := map[string]struct{ one, other string }{
		"a rate per second": {
			"rules:\n- key_pattern: global\n  rate: 0.5/second\n  " + limit,
			"rules:\n- key_pattern: global\n  rate_per_second: 0.5\n  " + limit,
		},
		"a rate per second with a unit": {
			"rules:\n- key_pattern: global\n  rate: 60/minute\n  " + limit,
			"rules:\n- key_pattern: global\n  rate_per_second: 1\n  rate_unit: minute\n  " + limit,
		},
		"a pattern in another form": {
			"rules:\n- key_pattern: ip:203.0.113.7\n  rate: 1/second\n  " + limit,
			"rules:\n- key_pattern: ip:\"::ffff:203.0.113.7\"\n  rate: 1/second\n  " + limit,
		},
		"the defaults": {
			"rules:\n- key_pattern: global\n  rate: 1/second\n  " + limit,
			"rules:\n- {key_pattern: global, name: '', rate: 1/second, burst_capacity: 1, mode: enforce, action: " +
				"limit, algorithm: token_bucket, is_active: true, description: ''}",
		},
		"lists that are left out": {"{}", "plans: []\nrules: []\noverrides: []"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if one, other := decode(t, test.one), decode(t, test.other); !reflect.DeepEqual(one, other) {
				t.Errorf("not the same:\n %+v\n %+v", one, other)
			}
		})
	}
}

func TestRulesMayUseThePlansThatTheTenantHas(t *testing.T) {
	t.Parallel()
	text := `rules: [{key_pattern: "user:{user_id}", plan: gold, rate: 1/second, burst_capacity: 1}]
overrides:
  - rule: {key_pattern: "user:{user_id}", plan: gold, name: elsewhere}
    user_id: a
    rate: 1/second
    burst_capacity: 1
    reason: r`
	config := must(Decode(strings.NewReader(text), "rules.yaml", []string{"gold"}))(t)
	want := rules.RuleIdentity{Pattern: "user:{user_id}", Plan: "gold", Name: "elsewhere"}
	if got := config.Overrides[0].Rule; got != want {
		t.Errorf("the override is for %v, want %v", got, want)
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config := drawConfig(t)
		text := encode(t, config)
		if got := decode(t, text); !reflect.DeepEqual(got, config) {
			t.Fatalf("written as\n%s\nand read as\n %+v, was\n %+v", text, got, config)
		}
	})
}

func FuzzWhatIsReadIsWrittenBack(f *testing.F) {
	f.Add(example)
	f.Add("plans: [{name: a}]\nrules: [{key_pattern: 'ip:{ip}', rate: 1/second, burst_capacity: 1}]")
	f.Add("rules:\n- &a {key_pattern: global}\n- *a\n")
	f.Add("{}\n---\n{}")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := Decode(strings.NewReader(text), "rules.yaml", nil)
		if err != nil {
			if !errors.As(err, new(Errors)) {
				t.Fatalf("a wrong file is told by %T: %v", err, err)
			}
			return
		}
		written := encode(t, config)
		if again := encode(t, decode(t, written)); again != written {
			t.Fatalf("written as\n%s\nand then as\n%s", written, again)
		}
	})
}

func drawConfig(t *rapid.T) Config {
	anyText := rapid.String().Filter(func(s string) bool {
		return utf8.ValidString(s) && !strings.Contains(s, "\x00") && utf8.RuneCountInString(s) <= rules.MaxReasonLength
	})
	yamlish := rapid.StringOf(rapid.SampledFrom(
		[]rune("a1 \t\n\r:#-?*&!|>'\"%@`{}[],~\u0085\u00a0\u2028\ufeff\uffff\x1b")))
	text := rapid.OneOf(anyText, yamlish,
		rapid.SampledFrom([]string{"", "null", "true", "42", "1e3", "2027-01-31", "<<", "---", " x", "x\n", "\nx"}))
	plan := rapid.SampledFrom([]string{"", "free", "42", "null"})
	unit := rapid.SampledFrom([]rules.RateUnit{rules.PerSecond, rules.PerMinute, rules.PerHour, rules.PerDay})
	rate := rapid.OneOf(rapid.Float64Range(1, 1e9),
		rapid.SampledFrom([]float64{1, 10, 1000.0 / 60, 1e6 / 86400.0, 1e-6}))
	burst := rapid.Int64Range(1, 31)

	config := Config{Plans: []rules.Plan{
		{Name: "42", Description: text.Draw(t, "description")},
		{Name: "free"},
		{Name: "null"},
	}}
	for _, key := range []string{"endpoint:/x", `ip:"2001:db8::/32"`, "user:{user_id}", `user:{user_id}:attr.a:"{b}"`} {
		rule := rules.Rule{
			Pattern: pattern(t, key), Plan: plan.Draw(t, "plan"),
			Name:          rapid.StringMatching(`[a-z0-9#:]{0,4}`).Draw(t, "name"),
			RatePerSecond: rate.Draw(t, "rate"), RateUnit: unit.Draw(t, "unit"), Burst: burst.Draw(t, "burst"),
			Algorithm: rules.TokenBucket, Active: rapid.Bool().Draw(t, "active"),
			Description: text.Draw(t, "description"),
			Action: rapid.SampledFrom([]rules.Action{
				rules.ActionLimit, rules.ActionBlock,
				rules.ActionBypass,
			}).Draw(t, "action"),
			Mode: rapid.SampledFrom([]rules.Mode{rules.ModeEnforce, rules.ModeShadow}).Draw(t, "mode"),
			FailureMode: rapid.SampledFrom([]rules.FailureMode{
				"", rules.FailLocal, rules.FailOpen,
				rules.FailClosed,
			}).Draw(t, "failure mode"),
		}
		if rule.Action != rules.ActionLimit {
			rule.RatePerSecond, rule.Burst, rule.Mode = 0, 0, rules.ModeEnforce
		} else {
			drawShape(t, &rule)
		}
		config.Rules = append(config.Rules, rule)
		if rule.Action != rules.ActionLimit || !rule.Pattern.SplitsByUser() {
			continue
		}
		override := ConfigOverride{Rule: rule.Identity(), Override: rules.Override{
			UserID: text.Filter(func(s string) bool { return s != "" && len(s) <= rules.MaxUserIDLength }).Draw(
				t, "user"),
			RatePerSecond: rate.Draw(t, "rate"), RateUnit: unit.Draw(t, "unit"), Burst: burst.Draw(t, "burst"),
			Reason: text.Filter(func(s string) bool { return strings.TrimSpace(s) != "" }).Draw(t, "reason"),
		}}
		if !rule.Algorithm.HasRate() {
			override.RatePerSecond = 0
		}
		if rapid.Bool().Draw(t, "expires") {
			override.ExpiresAt = time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "expiry")).UTC()
		}
		config.Overrides = append(config.Overrides, override)
	}
	return config
}

func drawShape(t *rapid.T, rule *rules.Rule) {
	seconds := func(most int64) time.Duration {
		return time.Duration(rapid.Int64Range(1, most).Draw(t, "seconds")) * time.Second
	}
	rule.Algorithm = rapid.SampledFrom(rules.Algorithms).Draw(t, "algorithm")
	if !rule.Algorithm.HasRate() {
		rule.RatePerSecond = 0
	}
	switch {
	case rule.Algorithm == rules.TokenBucket && rapid.Bool().Draw(t, "in steps"):
		rule.RefillInterval = seconds(366 * 86400)
	case rule.Algorithm == rules.Concurrency:
		rule.MaxHold = seconds(86400)
	case rule.Algorithm == rules.FixedWindow && rapid.Bool().Draw(t, "of the calendar"):
		rule.Window = rules.Window{
			Calendar: rules.CalendarMonth, Zone: "Europe/Berlin",
			StartDay: rapid.IntRange(0, 31).Draw(t, "start day"),
		}
		rule.NotifyAt = rapid.SampledFrom([][]int{nil, {100}, {80, 100}}).Draw(t, "notify at")
	case rule.Algorithm.HasWindow():
		rule.Window.Length = seconds(366 * 86400)
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func pattern(t fataler, text string) rules.Pattern {
	t.Helper()
	p, err := rules.ParsePattern(text)
	if err != nil {
		t.Fatalf("pattern %s: %v", text, err)
	}
	return p
}

func decode(t fataler, text string) Config {
	t.Helper()
	config, err := Decode(strings.NewReader(text), "rules.yaml", nil)
	if err != nil {
		t.Fatalf("reading\n%s\n%v", text, err)
	}
	return config
}

func encode(t fataler, config Config) string {
	t.Helper()
	var text bytes.Buffer
	if err := Encode(&text, config); err != nil {
		t.Fatalf("writing %+v: %v", config, err)
	}
	return text.String()
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
