package lend

import (
	"math"
	"time"
)

const (
	averaged     = 500 * time.Millisecond
	measureEvery = 50 * time.Millisecond
	// idleAfter is the time without a check before tokens are given back. At 100 ms, buckets with ten checks a second
	// gave back and asked again for each; above 200 ms nothing more is saved.
	idleAfter = 200 * time.Millisecond
	// doubt is assumed idle time, so that a single check does not count as a hundred a second.
	doubt = 100 * time.Millisecond
)

type demand struct {
	tokens float64 // millionths per second

	asked    int64   // when it was last measured
	measured Instant // when that was
	began    Instant // the end of the last idle time
	active   Instant // when a check was last seen
}

func newDemand(now Instant) demand { return demand{measured: now, began: now, active: now} }

func (d *demand) measure(now Instant, asked int64) {
	elapsed := float64(now.Mono - d.measured.Mono)
	if elapsed <= 0 {
		return
	}
	if asked != d.asked && d.isIdle(d.measured) {
		d.began = d.measured // the average begins anew: what came before the idle time says little
	}
	weight := max(1-math.Exp(-elapsed/float64(averaged)), elapsed/float64(now.Mono-d.began.Mono+int64(doubt)))
	d.tokens += (float64(asked-d.asked)*float64(time.Second)/elapsed - d.tokens) * weight
	if asked != d.asked {
		d.active = now
	}
	d.asked, d.measured = asked, now
}

func (d *demand) isIdle(now Instant) bool { return now.Mono-d.active.Mono >= int64(idleAfter) }
