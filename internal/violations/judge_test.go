package violations_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/violations"
)

func minutesOf(subject string, counts ...int64) (minutes []violations.MinuteCount) {
	for n, count := range counts {
		if count > 0 {
			minutes = append(minutes, violations.MinuteCount{
				Rule: 12, Subject: subject, Minute: noon.Add(time.Duration(n) * time.Minute), Count: count, Checks: 20,
			})
		}
	}
	return minutes
}

func TestAPreviewShowsWhenAnAlertWouldHaveBeenRaised(t *testing.T) {
	t.Parallel()
	alert := violations.Alert{Kind: violations.AlertDenials, Threshold: 10, Window: 3 * time.Minute}
	share := violations.Alert{Kind: violations.AlertNearLimit, Threshold: 50, Window: 3 * time.Minute}
	tests := map[string]struct {
		alert  violations.Alert
		counts []violations.MinuteCount
		want   []int // minutes after noon, the latest first
	}{
		"nothing":                   {alert, nil, nil},
		"one minute":                {alert, minutesOf("", 0, 10), []int{1}},
		"a window":                  {alert, minutesOf("", 3, 3, 4), []int{2}},
		"more than a window":        {alert, minutesOf("", 5, 0, 0, 5), nil},
		"twice in a window":         {alert, minutesOf("", 10, 0, 9), []int{0}},
		"what still holds after it": {alert, minutesOf("", 10, 0, 10), []int{4, 0}},
		"again after it":            {alert, minutesOf("", 10, 10, 10, 10, 10, 10), []int{8, 4, 0}},
		"again after a gap": {
			alert, minutesOf("", 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10),
			[]int{13, 0},
		},
		"late in the window that was whole": {alert, minutesOf("", 10, 0, 0, 0, 0, 4, 4), []int{0}},
		"two subjects":                      {alert, append(minutesOf("a", 0, 10), minutesOf("b", 10)...), []int{1, 0}},
		"two subjects together":             {alert, append(minutesOf("a", 9), minutesOf("b", 9)...), nil},
		"a share":                           {share, minutesOf("", 1, 10, 20), []int{2}},
		"a share of too few checks": {share, []violations.MinuteCount{
			{Rule: 12, Minute: noon, Count: 19, Checks: 19},
		}, nil},
		"after its end": {alert, []violations.MinuteCount{{Rule: 12, Minute: noon.Add(2 * time.Hour), Count: 99}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []int
			for _, firing := range test.alert.Preview(test.counts, noon.Add(time.Hour)) {
				got = append(got, int(firing.At.Sub(noon)/time.Minute))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("it is raised at the minutes %v, want %v", got, test.want)
			}
		})
	}
}

// A minute is evaluated as by the job, and an alert is not raised twice in its window, as in the store.
func TestAPreviewIsWhatTheAlertDoes(t *testing.T) {
	t.Parallel()
	var counts []violations.MinuteCount
	for minute := range int64(24 * 60) {
		if count := minute * 7919 % 23 * (minute / 100 % 3); count > 0 {
			counts = append(counts, violations.MinuteCount{
				Rule:   12,
				Minute: noon.Add(time.Duration(minute) * time.Minute), Count: count,
			})
		}
	}
	for _, alert := range []violations.Alert{
		{Kind: violations.AlertDenials, Threshold: 30, Window: time.Minute},
		{Kind: violations.AlertDenials, Threshold: 150, Window: 7 * time.Minute},
		{Kind: violations.AlertDenials, Threshold: 900, Window: time.Hour},
	} {
		until := noon.Add(25 * time.Hour)
		var played []time.Time
		for at := noon.Add(time.Minute - time.Microsecond); !at.After(until); at = at.Add(time.Minute) {
			if n := len(played); n > 0 && played[n-1].Add(time.Minute-time.Microsecond).After(alert.RaisedBefore(at)) {
				continue
			}
			if len(alert.Firings(counts, at)) > 0 {
				played = append(played, at.Truncate(time.Minute))
			}
		}
		var shown []time.Time
		for _, firing := range alert.Preview(counts, until) {
			shown = append(shown, firing.At)
		}
		slices.Reverse(shown)
		if !slices.EqualFunc(shown, played, time.Time.Equal) || len(shown) < 3 {
			t.Errorf("within %s: the preview has %d firings %v, and the alert was raised %d times at %v", alert.Window,
				len(shown), shown, len(played), played)
		}
	}
}
