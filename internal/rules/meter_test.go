package rules

import (
	"strings"
	"testing"
)

func TestMetersAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"requests", "input_tokens", "usd", "a", "a9_", "a" + strings.Repeat("b", 31)} {
		if m, err := ParseMeter(word); err != nil || m.Word() != word {
			t.Errorf("%s is read as %q, %v", word, m.Word(), err)
		}
	}
	for _, word := range []string{"", "9a", "_a", "Usd", "a-b", "a b", "é", "a" + strings.Repeat("b", 32), "a\x00"} {
		if m, err := ParseMeter(word); err == nil {
			t.Errorf("%q is read as %q, want an error", word, m)
		}
	}
}

func TestALimitSaysWhatItCounts(t *testing.T) {
	t.Parallel()
	rule := Standard()
	rule.Algorithm, rule.Burst, rule.Window = FixedWindow, 100_000, Window{Calendar: CalendarMonth}
	for meter, want := range map[Meter]string{
		"": "100,000 per month", "input_tokens": "100,000 input tokens per month", "usd": "100,000 USD per month",
		"eur": "100,000 EUR per month", "xyz": "100,000 xyz per month",
	} {
		if rule.Meter = meter; rule.DescribeLimit() != want {
			t.Errorf("%q: %s, want %s", meter, rule.DescribeLimit(), want)
		}
	}
	rule = Standard()
	rule.Meter, rule.RatePerSecond, rule.RateUnit, rule.Burst = "tokens", 10, PerMinute, 50
	if got, want := rule.DescribeLimit(), "600 tokens per minute, bursts to 50"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhatMetersAndChargesARuleMayHave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ object, field string }{
		"a budget":          {`{"meter": "usd", "charge": "after", "rate_per_second": 1, "burst_capacity": 5}`, ""},
		"an unknown charge": {`{"charge": "later", "rate_per_second": 1, "burst_capacity": 5}`, "charge"},
		"no meter":          {`{"meter": "", "rate_per_second": 1, "burst_capacity": 5}`, "meter"},
		"a meter in capitals": {
			`{"meter": "USD", "rate_per_second": 1, "burst_capacity": 5}`, "meter",
		},
		"a queue": {
			`{"algorithm": "leaky_bucket", "charge": "after", "rate_per_second": 1, "burst_capacity": 5}`, "charge",
		},
		"places": {
			`{"algorithm": "concurrency", "charge": "after", "max_hold": "1m", "burst_capacity": 5}`, "charge",
		},
		"a log": {
			`{"algorithm": "sliding_window_log", "charge": "after", "window": "1m", "burst_capacity": 5}`, "charge",
		},
		"a block":  {`{"action": "block", "meter": "usd"}`, "meter"},
		"a bypass": {`{"action": "bypass", "charge": "after"}`, "charge"},
	} {
		rule := Standard()
		rule.Pattern, _ = ParsePattern("user:{user_id}")
		wrong := append(rule.Set([]byte(test.object)), rule.Validate(nil)...)
		if test.field == "" && len(wrong) > 0 || test.field != "" && (len(wrong) != 1 || wrong[0].Field != test.field) {
			t.Errorf("%s: %v, want a mistake in %q", name, wrong, test.field)
		}
	}
}

func TestAMeterNamesARuleWithoutAName(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]string{{"", "", ""}, {"usd", "", "usd"}, {"usd", "monthly", "monthly"}} {
		rule := Rule{Meter: Meter(test[0]), Name: test[1]}
		if rule.NameByMeter(); rule.Name != test[2] {
			t.Errorf("a rule of %q named %q is called %q, want %q", test[0], test[1], rule.Name, test[2])
		}
	}
}

func TestTheMeterOfAStoredRuleStays(t *testing.T) {
	t.Parallel()
	before, after := Rule{Meter: "tokens"}, Rule{Meter: "usd"}
	if wrong := after.WrongMeterChange(&before); len(wrong) != 1 || wrong[0].Field != "meter" {
		t.Errorf("tokens to usd: %v, want a mistake in meter", wrong)
	}
	if wrong := before.WrongMeterChange(&before); len(wrong) > 0 {
		t.Errorf("no change: %v", wrong)
	}
}
