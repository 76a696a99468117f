package rules

import (
	"fmt"
	"math"
	"time"
)

// Adapt says how a rule's rate follows the health of the backend behind it; the zero value leaves the rate alone.
type Adapt struct {
	Backend string
	// FloorPercent is the lowest share of the rule's rate, 1 to 99.
	FloorPercent int
	// P99 is the target for latency, in whole milliseconds up to MaxP99; 0: none.
	P99 time.Duration
	// ErrorPercent is the highest acceptable share of failed requests; 0: none.
	ErrorPercent float64
}

// The bounds of an Adapt.
const (
	MaxBackendLength = 64 // bytes
	MaxP99           = time.Minute
	MinErrorPercent  = 0.01
	MaxErrorPercent  = 50.0
	// MaxAdapting is per tenant: the control loop judges each adapting rule every two seconds.
	MaxAdapting = 100
)

// Adapts reports whether the rule has a rate that adapts.
func (r *Rule) Adapts() bool {
	return r.Adapt.Backend != "" && r.Action == ActionLimit && r.Algorithm.HasRate()
}

// IsBackendName reports whether a text can name a backend: up to MaxBackendLength letters, digits, '_', '.' and '-'.
func IsBackendName(text string) bool { return isName(text, MaxBackendLength) }

func (r *Rule) wrongAdapt() (errs FieldErrors) {
	a := r.Adapt
	if a == (Adapt{}) {
		return nil
	}
	if !r.Algorithm.HasRate() {
		errs.Add("adapt", fmt.Sprintf("must be left out: a %s has no rate that could be lowered", r.Algorithm))
		return errs
	}
	if !IsBackendName(a.Backend) {
		errs.Add("adapt.backend", fmt.Sprintf("must be 1 to %d letters, digits, '_', '.' and '-', got %q",
			MaxBackendLength, a.Backend))
	}
	errs.Add("adapt.floor_percent", r.wrongFloor())
	if a.P99 < 0 || a.P99 > MaxP99 || a.P99%time.Millisecond != 0 {
		errs.Add("adapt.p99_ms", fmt.Sprintf("must be whole milliseconds from 1 to %d", MaxP99.Milliseconds()))
	}
	// Written so that NaN is out of range.
	if a.ErrorPercent != 0 && !(a.ErrorPercent >= MinErrorPercent && a.ErrorPercent <= MaxErrorPercent) {
		errs.Add("adapt.error_percent", fmt.Sprintf("must be from %v to %v", MinErrorPercent, MaxErrorPercent))
	}
	errs.AddIf(a.P99 == 0 && a.ErrorPercent == 0, "adapt", "must have a target: p99_ms, error_percent or both")
	return errs
}

func (r *Rule) wrongFloor() string {
	floor := r.Adapt.FloorPercent
	if floor < 1 || floor > 99 {
		return fmt.Sprintf("must be a whole percent from 1 to 99, got %d", floor)
	}
	lowest := r.RatePerSecond * float64(floor) / 100
	if lowest < MinRate || float64(r.Burst)/lowest > MaxTimeToFull.Seconds() {
		least := math.Ceil(100 * max(MinRate, float64(r.Burst)/MaxTimeToFull.Seconds()) / r.RatePerSecond)
		if least > 99 {
			return "must be left out with adapt: at any lower rate a bucket of this burst would take more than a " +
				"year to fill"
		}
		return fmt.Sprintf("must be at least %.0f: at a lower rate a bucket of this burst would take more than a "+
			"year to fill", least)
	}
	return ""
}

// Step is a rule's share of its rate for now. A step that the control loop does not renew expires, so that the
// configured rate returns when the loop is dead.
type Step struct {
	TenantID TenantID
	RuleID   RuleID
	Percent  int // of the rule's rate, from 1 to 100
	// SteppedAt is when the share last changed.
	SteppedAt time.Time
	// InForceSince is when the step was written or renewed, by the database's clock. A renewal counts as a new limit,
	// or a process that missed it would leave buckets at the configured rate.
	InForceSince time.Time
	EndsAt       time.Time
	Cause        string
	Memory       string
	Revision     int64
}

// Rate applies the step to a configured rate.
func (s *Step) Rate(configured float64) float64 { return ShareOf(configured, s.Percent) }

// ShareOf returns a share of a rate, in percent.
func ShareOf(rate float64, percent int) float64 { return max(MinRate, rate*float64(percent)/100) }
