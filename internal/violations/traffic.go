package violations

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Steps divide a time into equal parts. Since and Until are multiples of Step since the Unix epoch.
type Steps struct {
	Since, Until time.Time
	Step         time.Duration // whole minutes and, above an hour, whole hours
}

const maxSteps = 200

var stepLengths = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
}

// StepsFor returns the shortest steps that cover a time, rounded outwards, in at most 200 points. An until before since
// counts as since.
func StepsFor(since, until time.Time) Steps { return shortestSteps(stepLengths, since, until) }

func shortestSteps(lengths []time.Duration, since, until time.Time) Steps {
	if until.Before(since) {
		until = since
	}
	var s Steps
	for _, step := range lengths {
		if s = StepsOf(since, until, step); s.Count() <= maxSteps {
			break
		}
	}
	return s
}

var fineLengths = append([]time.Duration{time.Second, 5 * time.Second, 15 * time.Second}, stepLengths...)

// FineSteps is StepsFor with steps below a minute, for violations: decisions are counted by the minute.
func FineSteps(since, until time.Time) Steps { return shortestSteps(fineLengths, since, until) }

// StepsOf returns steps that cover a time, rounded outwards.
func StepsOf(since, until time.Time, step time.Duration) Steps {
	s := Steps{Since: floor(since, step), Until: floor(until, step), Step: step}
	if s.Until.Before(until) {
		s.Until = s.Until.Add(step)
	}
	return s
}

// floor rounds like the database. time.Truncate counts from the year 1, so its weeks differ.
func floor(at time.Time, step time.Duration) time.Time {
	seconds, length := at.Unix(), int64(step/time.Second)
	return time.Unix(seconds-((seconds%length)+length)%length, 0).UTC()
}

// Count returns the number of steps.
func (s Steps) Count() int { return int(s.Until.Sub(s.Since) / s.Step) }

func (s Steps) before() Steps {
	return Steps{Since: s.Since.Add(s.Since.Sub(s.Until)), Until: s.Since, Step: s.Step}
}

// Chart is decisions over time.
type Chart struct {
	Steps
	Points []Point // one for each step
	Total  Verdicts
	Before Verdicts
}

// Traffic returns the chart of a tenant's checks or, if rule is not 0, of those that it matched.
func Traffic(ctx context.Context, store Store, tenant rules.TenantID, rule rules.RuleID, since, until time.Time) (Chart,
	error,
) {
	return TrafficBy(ctx, store, tenant, rule, StepsFor(since, until))
}

// TrafficBy is Traffic with given steps.
func TrafficBy(ctx context.Context, store Store, tenant rules.TenantID, rule rules.RuleID, steps Steps) (Chart, error) {
	chart := Chart{Steps: steps}
	known, err := store.Decisions(ctx, tenant, rule, chart.Steps)
	if err != nil {
		return Chart{}, err
	}
	chart.Points = make([]Point, chart.Count())
	for i := range chart.Points {
		chart.Points[i].At = chart.Since.Add(time.Duration(i) * chart.Step)
	}
	for _, point := range known {
		chart.Total.add(point.Verdicts)
		if i := int(point.At.Sub(chart.Since) / chart.Step); i >= 0 && i < len(chart.Points) {
			chart.Points[i].Verdicts = point.Verdicts
		}
	}
	before, err := store.Decisions(ctx, tenant, rule, chart.before())
	if err != nil {
		return Chart{}, err
	}
	for _, point := range before {
		chart.Before.add(point.Verdicts)
	}
	return chart, nil
}

// exactly is the longest time that is added up by the minute. A longer one is by the hour, which reads fewer rows.
const exactly = 7 * 24 * time.Hour

// Totals adds up the decisions on checks that each rule matched; rule 0 is all checks. Rules without checks are left
// out, and the time is widened to whole minutes or, beyond a week, whole hours.
func Totals(
	ctx context.Context, store Store, tenant rules.TenantID, of []rules.RuleID, since, until time.Time,
) (map[rules.RuleID]Verdicts, error) {
	step := time.Minute
	if until.Sub(since) > exactly {
		step = time.Hour
	}
	return store.Totals(ctx, tenant, of, StepsOf(since, until, step))
}

// Within returns the longest part of the steps between multiples of a length; if empty, at their end.
func (s Steps) Within(length time.Duration) (since, until time.Time) {
	since, until = StepsOf(s.Since, s.Since, length).Until, floor(s.Until, length)
	if until.Before(since) {
		return s.Until, s.Until
	}
	return since, until
}
