package rules

import (
	"math"
	"strconv"
	"time"
)

// DescribeLimit writes the limit of a rule that limits as people say it:
//
//	10 per second, bursts to 50
//	5 every 10 s, bursts to 20
//	10 per second through a queue of 50
//	10,000 per month from the 15th, Europe/Berlin
//	about 100 in any minute
//	20 at once, held at most 10 min
func (r *Rule) DescribeLimit() string {
	burst := grouped(strconv.FormatInt(r.Burst, 10))
	switch r.Algorithm {
	case LeakyBucket:
		return describeRate(r.RatePerSecond, r.RateUnit) + " through a queue of " + burst
	case FixedWindow:
		return burst + " per " + r.Window.describe()
	case SlidingWindow:
		return "about " + burst + " in any " + r.Window.describe()
	case SlidingWindowLog:
		return burst + " in any " + r.Window.describe()
	case Concurrency:
		return burst + " at once, held at most " + DescribeDuration(r.MaxHold)
	}
	if r.RefillInterval == 0 {
		return describeRate(r.RatePerSecond, r.RateUnit) + ", bursts to " + burst
	}
	step := r.RatePerSecond * r.RefillInterval.Seconds()
	if whole := math.Round(step); whole >= 1 && math.Abs(step-whole) < 1e-9*whole {
		return grouped(strconv.FormatFloat(whole, 'f', -1, 64)) + " every " + DescribeDuration(r.RefillInterval) + ", bursts to " + burst
	}
	return describeRate(r.RatePerSecond, r.RateUnit) + " in steps of " + DescribeDuration(r.RefillInterval) + ", bursts to " + burst
}

// DescribeAmounts writes an override's rate and burst without its rule: 10 per second, bursts to 50.
func DescribeAmounts(perSecond float64, unit RateUnit, burst int64) string {
	if perSecond == 0 {
		return "burst " + grouped(strconv.FormatInt(burst, 10))
	}
	return describeRate(perSecond, unit) + ", bursts to " + grouped(strconv.FormatInt(burst, 10))
}

// Describe writes a limit of the rule, which may be an override's, as DescribeLimit writes the rule's own.
func (r *Rule) Describe(limit Limit) string {
	own := *r
	own.RatePerSecond, own.Burst = limit.Rate, limit.Burst
	return own.DescribeLimit()
}

func describeRate(perSecond float64, unit RateUnit) string {
	number, unit := ratePerUnit(perSecond, unit)
	return grouped(number) + " per " + string(unit)
}

// describe writes the window so that it can stand after "per" and "in any".
func (w Window) describe() string {
	switch w.Length {
	case 0:
	case time.Second:
		return string(PerSecond)
	case time.Minute:
		return string(PerMinute)
	case time.Hour:
		return string(PerHour)
	case 24 * time.Hour:
		return string(PerDay)
	default:
		return DescribeDuration(w.Length)
	}
	text := string(w.Calendar)
	switch {
	case w.StartDay <= 1:
	case w.Calendar == CalendarWeek:
		text += " from " + time.Weekday(w.StartDay%7).String()
	case w.Calendar == CalendarMonth:
		text += " from the " + ordinal(w.StartDay)
	}
	if w.Zone != "" {
		text += ", " + w.Zone
	}
	return text
}

func ordinal(n int) string {
	ending := "th"
	if n/10 != 1 && n%10 >= 1 && n%10 <= 3 {
		ending = []string{"st", "nd", "rd"}[n%10-1]
	}
	return strconv.Itoa(n) + ending
}

// DescribeDuration writes a duration of whole seconds in the largest unit that divides it: 10 s, 5 min, 2 h, 7 days.
func DescribeDuration(d time.Duration) string {
	const day = 24 * time.Hour
	count := func(unit time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) }
	switch {
	case d == day:
		return "1 day"
	case d > 0 && d%day == 0:
		return count(day) + " days"
	case d > 0 && d%time.Hour == 0:
		return count(time.Hour) + " h"
	case d > 0 && d%time.Minute == 0:
		return count(time.Minute) + " min"
	}
	return count(time.Second) + " s"
}
