package ruleset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const limitsOfAllAlgorithms = `plans: []
rules:
  - key_pattern: user:{user_id}
    name: calls
    burst_capacity: 20
    algorithm: concurrency
    max_hold: 10m
  - key_pattern: user:{user_id}
    name: log
    burst_capacity: 100
    algorithm: sliding_window_log
    window: 1m
  - key_pattern: user:{user_id}
    name: quota
    burst_capacity: 10000
    algorithm: fixed_window
    window: month
    window_zone: Europe/Berlin
    window_start_day: 15
    notify_at: [80, 100]
  - key_pattern: user:{user_id}
    name: smooth
    rate: 10/second
    burst_capacity: 50
    algorithm: leaky_bucket
  - key_pattern: user:{user_id}
    name: steps
    rate: 30/minute
    burst_capacity: 20
    refill_interval: 10s
overrides:
  - rule: {key_pattern: 'user:{user_id}', name: quota}
    user_id: "42"
    burst_capacity: 50000
    reason: bigger contract
`

func TestLimitsOfAllAlgorithmsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	config := decode(t, limitsOfAllAlgorithms)
	if got := encode(t, config); got != limitsOfAllAlgorithms {
		t.Errorf("written as\n%s\nwant\n%s", got, limitsOfAllAlgorithms)
	}
	changes, err := Diff(Config{}, config, DiffOptions{})
	var text strings.Builder
	if err := errors.Join(err, changes.WriteText(&text)); err != nil {
		t.Fatal(err)
	}
	const want = `+ rule user:{user_id} calls: 20 at once, held at most 10 min
+ rule user:{user_id} log: 100 in any minute
+ rule user:{user_id} quota: 10,000 per month from the 15th, Europe/Berlin
+ rule user:{user_id} smooth: 10 per second through a queue of 50
+ rule user:{user_id} steps: 5 every 10 s, bursts to 20
+ override for user 42 of rule user:{user_id} quota: burst 50,000 (bigger contract)
`
	if text.String() != want {
		t.Errorf("the changes are\n%swant\n%s", &text, want)
	}
}

func TestEachPartOfALimitIsADifference(t *testing.T) {
	t.Parallel()
	current := decode(t, limitsOfAllAlgorithms)
	for from, to := range map[string]string{
		"max_hold: 10m": "max_hold: 11m", "window: 1m": "window: 90s",
		"algorithm: sliding_window_log": "algorithm: sliding_window",
		"window_zone: Europe/Berlin":    "window_zone: Europe/Paris", "window_start_day: 15": "window_start_day: 16",
		"notify_at: [80, 100]": "notify_at: [90]", "refill_interval: 10s": "refill_interval: 20s",
		"window: month": "window: week",
	} {
		text := strings.Replace(limitsOfAllAlgorithms, from, to, 1)
		if to == "window: week" {
			text = strings.Replace(text, "window_start_day: 15", "window_start_day: 1", 1)
		}
		changes, err := Diff(current, decode(t, text), DiffOptions{})
		if err != nil || len(changes.Rules) != 1 || len(changes.Overrides) != 0 {
			t.Errorf("%s: %+v, error %v; want one changed rule", to, changes, err)
		}
	}
}

func TestAnOverrideFitsItsRuleInTheDatabase(t *testing.T) {
	t.Parallel()
	current := decode(t, limitsOfAllAlgorithms)
	const override = "overrides:\n- rule: {key_pattern: 'user:{user_id}', name: %s}\n  user_id: a\n  burst_capacity: " +
		"%d\n  reason: r\n%s"
	for name, test := range map[string]struct {
		rule, rate string
		burst      int
		want       string
	}{
		"a burst of a window": {"log", "", 1000, ""},
		"too large a log": {
			"log", "", 1001,
			"override for user a of rule user:{user_id} log: burst_capacity: must be a whole number from 1 to 1000, " +
				"got 1001",
		},
		"a rate of a window": {
			"quota", "  rate: 1/second\n", 5,
			"override for user a of rule user:{user_id} quota: rate_per_second: must be 0 or left out: a " +
				"fixed_window has a burst and no rate",
		},
		"a queue without a rate": {
			"smooth", "", 5,
			"override for user a of rule user:{user_id} smooth: rate_per_second: must be from 0.000001 to 1000000000 " +
				"tokens per second, got 0",
		},
		"a queue with its amount": {"smooth", "  rate: 1/second\n", 5, ""},
	} {
		desired := decode(t, fmt.Sprintf(override, test.rule, test.burst, test.rate))
		_, err := Diff(current, desired, DiffOptions{})
		if got := fmt.Sprint(err); err != nil && got != test.want || err == nil && test.want != "" {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

func TestAnOverrideOlderThanTheAlgorithmIsWrittenAsItActs(t *testing.T) {
	t.Parallel()
	config := exampleConfig(t)
	limit := &config.Rules[2]
	limit.RatePerSecond, limit.Burst, limit.Algorithm, limit.MaxHold = 0, 5, rules.Concurrency, time.Minute
	config.Overrides[0].Burst = 5000
	written := decode(t, encode(t, config)).Overrides[0]
	if written.RatePerSecond != 0 || written.Burst != rules.MaxListed {
		t.Errorf("written as %+v, want the most places and no rate", written)
	}
}
