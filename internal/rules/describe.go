package rules

import (
	"math"
	"strconv"
	"time"
)

// DescribeLimit describes the limit of a rule with ActionLimit for people:
//
//	10 per second, bursts to 50
//	5 every 10 s, bursts to 20
//	10 per second through a queue of 50
//	10,000 per month from the 15th, Europe/Berlin
//	about 100 in any minute
//	20 at once, held at most 10 min
//	100,000 input tokens per day
//	50 USD per month
func (r *Rule) DescribeLimit() string {
	burst, unit := grouped(strconv.FormatInt(r.Burst, 10)), r.Meter.unit()
	switch r.Algorithm {
	case LeakyBucket:
		return describeRate(r.RatePerSecond, r.RateUnit, unit) + " through a queue of " + burst
	case FixedWindow:
		return burst + unit + " per " + r.Window.describe()
	case SlidingWindow:
		return "about " + burst + unit + " in any " + r.Window.describe()
	case SlidingWindowLog:
		return burst + unit + " in any " + r.Window.describe()
	case Concurrency:
		return burst + " at once, held at most " + DescribeDuration(r.MaxHold)
	}
	if r.RefillInterval == 0 {
		return describeRate(r.RatePerSecond, r.RateUnit, unit) + ", bursts to " + burst
	}
	step := r.RatePerSecond * r.RefillInterval.Seconds()
	if whole := math.Round(step); whole >= 1 && math.Abs(step-whole) < 1e-9*whole {
		return grouped(strconv.FormatFloat(whole, 'f', -1, 64)) + unit + " every " +
			DescribeDuration(r.RefillInterval) + ", bursts to " + burst
	}
	return describeRate(r.RatePerSecond, r.RateUnit, unit) + " in steps of " + DescribeDuration(r.RefillInterval) +
		", bursts to " + burst
}

// DescribeAmounts describes an override's rate and burst without its rule: 10 per second, bursts to 50.
func DescribeAmounts(perSecond float64, unit RateUnit, burst int64) string {
	if perSecond == 0 {
		return "burst " + grouped(strconv.FormatInt(burst, 10))
	}
	return describeRate(perSecond, unit, "") + ", bursts to " + grouped(strconv.FormatInt(burst, 10))
}

// Describe describes another limit of the rule, such as an override.
func (r *Rule) Describe(limit Limit) string {
	own := *r
	own.RatePerSecond, own.Burst = limit.Rate, limit.Burst
	if limit.Kind == KindFixedWindow && limit.Interval > 0 { // a check's own limit can have another algorithm
		own.Algorithm, own.Window = FixedWindow, Window{Length: time.Duration(limit.Interval) * time.Microsecond}
	}
	return own.DescribeLimit()
}

func describeRate(perSecond float64, unit RateUnit, counted string) string {
	number, unit := ratePerUnit(perSecond, unit)
	return grouped(number) + counted + " per " + string(unit)
}

func (w Window) describe() string {
	for _, unit := range []RateUnit{PerSecond, PerMinute, PerHour, PerDay} {
		if w.Length == unit.Length() {
			return string(unit)
		}
	}
	if w.Length != 0 {
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

// DescribeDuration describes whole seconds for people: 10 s, 90 s, 2 min 30 s, 36 h, 7 days. The UI does the same; both
// are tested with testdata/grammar.json.
func DescribeDuration(d time.Duration) string {
	var text []byte
	for _, unit := range [...]struct {
		size      time.Duration
		one, many string
	}{{24 * time.Hour, "day", "days"}, {time.Hour, "h", "h"}, {time.Minute, "min", "min"}, {time.Second, "s", "s"}} {
		isFirst := len(text) == 0
		if isFirst && d < 2*unit.size && d != unit.size && unit.size > time.Second {
			continue
		}
		count := int64(d / unit.size)
		if count == 0 && !isFirst {
			continue
		}
		d -= time.Duration(count) * unit.size
		if !isFirst {
			text = append(text, ' ')
		}
		text = append(strconv.AppendInt(text, count, 10), ' ')
		if count == 1 {
			text = append(text, unit.one...)
		} else {
			text = append(text, unit.many...)
		}
	}
	return string(text)
}
