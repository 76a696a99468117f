package adapt

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// The constants of the control: additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the Increase and
// Decrease Algorithms for Congestion Avoidance in Computer Networks", 1989).
const (
	decrease = 0.7 // a missed target multiplies the share by this
	increase = 5   // percent of the configured rate that a met target adds

	// settling is how long a step needs to show in reports: two seconds to reach checks, and three until the requests that
	// it let through were reported. Earlier reports say nothing about it.
	settling = 5 * time.Second
	// minPause is the least time between two steps of a rule, so that there are at most six in a minute.
	minPause = 10 * time.Second
	// minRequests is how many requests are judged at least, unless the whole Window has fewer.
	minRequests = 20

	// A target is met clearly, so that the rate may rise, below these parts of it. In between nothing changes, so that noise
	// around the target does not move the rate.
	clearP99    = 0.8
	clearErrors = 0.5

	// A share near one at which the target was missed is not tried again for firstWait. The wait doubles, up to lastWait, with
	// each further miss there. So a backend that stays slow is probed seldom, and one that recovers at once is trusted soon.
	// A probe has succeeded, and the wait halves, when the target was still met after probation: a queue that overflows slowly
	// looks fine first.
	firstWait = time.Minute
	lastWait  = 8 * time.Minute
	probation = time.Minute
)

// Memory is what the loop remembers of a rule between two decisions.
type Memory struct {
	Percent   int       `json:"-"` // the share of its rate that the rule has, from 1 to 100
	SteppedAt time.Time `json:"-"` // when that changed; zero: never
	// MissedPercent is the share at which the target was missed last after it had been met; 0 for none. Shares near it or
	// above are not tried before ProbeAt.
	MissedPercent int           `json:"missed_percent,omitempty"`
	ProbeAt       time.Time     `json:"probe_at,omitzero"`
	Wait          time.Duration `json:"wait_ns,omitempty"`
	// Falling means that the last step was one down. A further miss then says little of the share: the backend may still be
	// busy with what an earlier one let through.
	Falling bool `json:"falling,omitempty"`
}

// Verdict is how a backend does, as a rule's targets have it.
type Verdict int

// The verdicts. Unknown means that nobody reported within the Window.
const (
	Unknown Verdict = iota
	Undecided
	Missed
	Near // between the target and what is clearly met
	Met
)

// Decision is what becomes of a rule's share.
type Decision struct {
	Memory
	Verdict Verdict
	// Cause says why the share is what it is, for people; "" if nothing new is known.
	Cause string
}

// Decide returns a rule's next share. The slices are those of its backend, and all times are of one clock. It changes
// nothing and knows nothing else, so that the same reports always lead to the same steps.
func Decide(m Memory, rule rules.Adapt, slices []Slice, now time.Time) Decision {
	if m.Percent < 1 || m.Percent > 100 {
		m.Percent = 100
	}
	if m.Percent < rule.FloorPercent { // the floor was raised
		m.Percent, m.SteppedAt = rule.FloorPercent, now
		return Decision{Memory: m, Verdict: Undecided, Cause: "the floor was raised"}
	}
	seen, enough, reported := judged(m, slices, now)
	if !reported {
		return Decision{Memory: m, Verdict: Unknown}
	}
	d := Decision{Memory: m, Verdict: Undecided}
	if !enough {
		return d
	}
	d.Verdict, d.Cause = judge(rule, &seen)
	mayStep := now.Sub(m.SteppedAt) >= minPause
	switch d.Verdict {
	case Missed:
		if mayStep {
			d.Memory = m.lower(rule.FloorPercent, now)
		}
	case Met:
		d.Memory = m.raise(mayStep, now)
	}
	return d
}

// judged sums up the slices since the last step has settled. enough reports whether they say something, and reported whether
// anybody reported within the Window.
func judged(m Memory, slices []Slice, now time.Time) (seen Seen, enough, reported bool) {
	from := now.Add(-Window)
	settled := m.SteppedAt.Add(settling)
	for i := range slices {
		s := &slices[i]
		if s.Requests == 0 || !s.Start.Add(SliceLength).After(from) {
			continue
		}
		reported = true
		if !s.Start.Before(settled) {
			seen.Add(&s.Seen)
		}
	}
	// A quiet backend is judged by what a minute has.
	enough = seen.Requests >= minRequests || seen.Requests > 0 && now.Sub(settled) >= Window
	return seen, enough, reported
}

// judge compares what was seen with the targets. The worst decides.
func judge(rule rules.Adapt, seen *Seen) (verdict Verdict, cause string) {
	verdict = Met
	if rule.ErrorPercent > 0 {
		percent := seen.ErrorPercent()
		verdict = compare(percent, rule.ErrorPercent, clearErrors)
		cause = fmt.Sprintf("%s of %d requests failed, and at most %s should", showPercent(percent), seen.Requests, showPercent(rule.ErrorPercent))
	}
	if known := seen.Latency.Count(); rule.P99 > 0 && known > 0 {
		p99 := seen.Latency.P99()
		v := compare(float64(p99), float64(rule.P99), clearP99)
		if cause == "" || v < verdict {
			verdict = v
			cause = fmt.Sprintf("p99 of %d requests is %s, and should be at most %s", known, showLatency(p99), showLatency(rule.P99))
		}
	} else if rule.P99 > 0 && rule.ErrorPercent == 0 {
		return Undecided, ""
	}
	return verdict, cause
}

func compare(value, target, clearly float64) Verdict {
	switch {
	case value > target:
		return Missed
	case value > target*clearly:
		return Near
	}
	return Met
}

// lower remembers the share as missed, and lowers it down to the floor.
func (m Memory) lower(floor int, now time.Time) Memory {
	if m.Percent <= floor {
		return m // there is nothing lower to compare with
	}
	switch {
	case m.Wait == 0:
		m.Wait = firstWait
	case !m.Falling && m.nearMissed(m.Percent): // a probe failed
		m.Wait = min(2*m.Wait, lastWait)
	}
	if !m.Falling {
		m.MissedPercent, m.Falling = m.Percent, true
	}
	m.ProbeAt = now.Add(m.Wait)
	m.Percent = max(floor, int(math.Floor(float64(m.Percent)*decrease)))
	m.SteppedAt = now
	return m
}

// raise raises the share, unless that would try a missed one too soon.
func (m Memory) raise(mayStep bool, now time.Time) Memory {
	if m.MissedPercent > 0 && m.Percent >= m.MissedPercent {
		if now.Sub(m.SteppedAt) < probation {
			return m
		}
		m.MissedPercent, m.ProbeAt = 0, time.Time{}
		if m.Wait /= 2; m.Wait < firstWait {
			m.Wait = 0
		}
	}
	next := min(m.Percent+increase, 100)
	if !mayStep || next == m.Percent || m.nearMissed(next) && now.Before(m.ProbeAt) {
		return m
	}
	m.Percent, m.SteppedAt, m.Falling = next, now, false
	return m
}

// nearMissed reports whether a share is one that the last miss speaks against.
func (m *Memory) nearMissed(percent int) bool {
	return m.MissedPercent > 0 && percent > m.MissedPercent-increase
}

func showPercent(percent float64) string {
	return strconv.FormatFloat(math.Round(percent*100)/100, 'f', -1, 64) + " %"
}

func showLatency(d time.Duration) string {
	if last := time.Duration(Bounds[len(Bounds)-1]) * time.Millisecond; d > last {
		return "more than " + showLatency(last)
	}
	if d < 10*time.Millisecond {
		return strconv.FormatFloat(math.Round(float64(d)/float64(100*time.Microsecond))/10, 'f', -1, 64) + " ms"
	}
	return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
}
