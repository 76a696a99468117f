package adapt

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// The constants of the control: additive increase, multiplicative decrease (Chiu and Jain, "Analysis of the
// Increase and Decrease Algorithms for Congestion Avoidance in Computer Networks", 1989).
const (
	decrease = 0.7 // factor for the share after a missed target
	increase = 5   // percent of the configured rate, added after a met target

	settling    = 5 * time.Second // two seconds to reach checks, and three until their requests are reported
	minPause    = 10 * time.Second
	minRequests = 20 // for a verdict, unless the whole Window has fewer

	// Below this part of its target a value is clearly met. In between nothing changes, so that noise around the target
	// does not move the rate.
	clearP99    = 0.8
	clearErrors = 0.5

	// A share near one that missed the target is not tried again for firstWait. Each further miss there doubles the
	// wait up to lastWait; meeting the target after probation halves it, since a slowly overflowing queue looks fine
	// at first.
	firstWait = time.Minute
	lastWait  = 8 * time.Minute
	probation = time.Minute
)

// Memory is the state of a rule between two decisions.
type Memory struct {
	Percent   int       `json:"-"` // of the configured rate, from 1 to 100
	SteppedAt time.Time `json:"-"` // last change of Percent; zero: never
	// MissedPercent is the share at the last miss after the target was met; 0 for none. Shares near it or above are
	// not tried before ProbeAt.
	MissedPercent int           `json:"missed_percent,omitempty"`
	ProbeAt       time.Time     `json:"probe_at,omitzero"`
	Wait          time.Duration `json:"wait_ns,omitempty"`
	// Falling means that the last step was down. A further miss then says little about the share: the backend may
	// still be busy with earlier requests.
	Falling bool `json:"falling,omitempty"`
}

// Verdict is the health of a backend by a rule's targets.
type Verdict int

// The verdicts. Unknown means that the Window has no reports.
const (
	Unknown Verdict = iota
	Undecided
	Missed
	Near // between the target and clearly met
	Met
)

// Decision is a rule's next state.
type Decision struct {
	Memory
	Verdict Verdict
	Cause   string // for people; "" if nothing new is known
}

// Decide returns a rule's next share. slices belong to its backend, and all times to one clock.
func Decide(m Memory, rule rules.Adapt, slices []Slice, now time.Time) Decision {
	if m.Percent < 1 || m.Percent > 100 {
		m.Percent = 100
	}
	if m.Percent < rule.FloorPercent {
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
	enough = seen.Requests >= minRequests || seen.Requests > 0 && now.Sub(settled) >= Window // a quiet backend
	return seen, enough, reported
}

func judge(rule rules.Adapt, seen *Seen) (verdict Verdict, cause string) {
	verdict = Met
	if rule.ErrorPercent > 0 {
		percent := seen.ErrorPercent()
		verdict = compare(percent, rule.ErrorPercent, clearErrors)
		cause = fmt.Sprintf("%s of %d requests failed, and at most %s should", showPercent(percent), seen.Requests,
			showPercent(rule.ErrorPercent))
	}
	if known := seen.Latency.Count(); rule.P99 > 0 && known > 0 {
		p99 := seen.Latency.P99()
		v := compare(float64(p99), float64(rule.P99), clearP99)
		if cause == "" || v < verdict {
			verdict = v
			cause = fmt.Sprintf("p99 of %d requests is %s, and should be at most %s", known, showLatency(p99),
				showLatency(rule.P99))
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

func (m Memory) lower(floor int, now time.Time) Memory {
	if m.Percent <= floor {
		return m
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
