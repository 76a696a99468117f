package rules

import (
	"testing"
	"time"
)

func TestCalendarWindows(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02T15:04Z07:00"
	for _, test := range []struct {
		name             string
		window           Window
		at               string
		start, end, past string // past begins the window after the next
	}{
		{
			"a day in UTC",
			Window{Calendar: CalendarDay},
			"2027-03-05T13:00Z", "2027-03-05T00:00Z", "2027-03-06T00:00Z",
			"2027-03-08T00:00Z",
		},
		{
			"a day has 23 hours when clocks go forward",
			Window{Calendar: CalendarDay, Zone: "Europe/Berlin"},
			"2027-03-28T12:00Z", "2027-03-27T23:00Z", "2027-03-28T22:00Z", "2027-03-30T22:00Z",
		},
		{
			"a day has 25 hours when clocks go back",
			Window{Calendar: CalendarDay, Zone: "Europe/Berlin"},
			"2027-10-31T12:00Z", "2027-10-30T22:00Z", "2027-10-31T23:00Z", "2027-11-02T23:00Z",
		},
		{
			"a day begins at one where midnight is skipped",
			Window{Calendar: CalendarDay, Zone: "Asia/Beirut"},
			"2027-03-28T06:00Z", "2027-03-27T22:00Z", "2027-03-28T21:00Z", "2027-03-30T21:00Z",
		},
		{
			"a week begins on a Monday",
			Window{Calendar: CalendarWeek},
			"2027-03-05T13:00Z", "2027-03-01T00:00Z",
			"2027-03-08T00:00Z", "2027-03-22T00:00Z",
		},
		{
			"a week that begins on a Sunday",
			Window{Calendar: CalendarWeek, StartDay: 7},
			"2027-03-05T13:00Z",
			"2027-02-28T00:00Z", "2027-03-07T00:00Z", "2027-03-21T00:00Z",
		},
		{
			"a month",
			Window{Calendar: CalendarMonth},
			"2027-12-31T23:59Z", "2027-12-01T00:00Z", "2028-01-01T00:00Z",
			"2028-03-01T00:00Z",
		},
		{
			"a month from the 31st begins on the last day",
			Window{Calendar: CalendarMonth, StartDay: 31},
			"2027-02-10T00:00Z", "2027-01-31T00:00Z", "2027-02-28T00:00Z", "2027-04-30T00:00Z",
		},
		{
			"from the 31st, on the last day of February",
			Window{Calendar: CalendarMonth, StartDay: 31},
			"2028-02-29T00:00Z", "2028-02-29T00:00Z", "2028-03-31T00:00Z", "2028-05-31T00:00Z",
		},
		{
			"a month before its day",
			Window{Calendar: CalendarMonth, StartDay: 15, Zone: "America/New_York"},
			"2027-03-15T03:00Z", "2027-02-15T05:00Z", "2027-03-15T04:00Z", "2027-05-15T04:00Z",
		},
		{
			"a day that the zone skipped",
			Window{Calendar: CalendarDay, Zone: "Pacific/Apia"},
			"2011-12-30T05:00Z",
			"2011-12-29T10:00Z", "2011-12-30T10:00Z", "2012-01-01T10:00Z",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			at := must(time.Parse(layout, test.at))(t)
			if errs := test.window.wrong(); len(errs) > 0 {
				t.Fatal(errs)
			}
			limit := Limit{Kind: KindFixedWindow, Interval: test.window.interval()}
			starts, _ := limit.CalendarStarts(at.UnixMicro())
			format := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(layout) }
			if got := [3]string{format(starts[1]), format(starts[2]), format(starts[3])}; got[0] != test.start ||
				got[1] != test.end {
				t.Errorf("window %v", got)
			}
			if starts[0] >= starts[1] || starts[3] <= starts[2] {
				t.Errorf("starts %v are not in order", starts)
			}
			// Windows must be contiguous, whichever of them the time is in.
			after, _ := limit.CalendarStarts(starts[2])
			if after[0] != starts[1] || after[1] != starts[2] || after[2] != starts[3] ||
				format(after[3]) != test.past {
				t.Errorf("from within the next window: %s %s %s %s", format(after[0]), format(after[1]),
					format(after[2]), format(after[3]))
			}
			if start, end := limit.WindowAt(starts[2] - 1); start != starts[1] || end != starts[2] {
				t.Errorf("the window's last moment is in %s to %s", format(start), format(end))
			}
		})
	}
}

func TestCalendarsAreTheSameInEveryProcess(t *testing.T) {
	t.Parallel()
	window := Window{Calendar: CalendarMonth, StartDay: 15, Zone: "Europe/Berlin"}
	if got := window.interval(); got != -102912567918727 {
		t.Errorf("code %d: stored buckets of another release have another", got)
	}
	if same := (Window{Calendar: CalendarMonth, StartDay: 1}).interval(); same != (Window{
		Calendar: CalendarMonth,
		Zone:     "UTC",
	}).interval() {
		t.Error("the first day and UTC are not the defaults")
	}
}
