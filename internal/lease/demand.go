package lease

import (
	"math"
	"time"
)

const (
	// averaged is the time over which demand is averaged.
	averaged = 500 * time.Millisecond
	// measureEvery is how often demand is computed while a bucket has enough tokens.
	measureEvery = 50 * time.Millisecond
	// A bucket is idle once no check came for idleGaps times the usual time between two, within these bounds. Then its tokens are
	// given back.
	idleGaps            = 5
	leastIdle, mostIdle = 100 * time.Millisecond, 500 * time.Millisecond
	// doubt is for how long nobody is assumed to have asked before the first check after an idle time, so that a single check
	// does not count as a hundred a second.
	doubt = 100 * time.Millisecond
)

// demand is how much checks ask of a bucket, and how often, averaged since the bucket was idle and over no more than about
// averaged.
type demand struct {
	tokens float64 // millionths per second
	checks float64 // per second

	asked, count int64   // when it was last measured
	measured     Instant // when that was
	began        Instant // the end of the last idle time
	active       Instant // when a check was last seen
}

func newDemand(now Instant) demand { return demand{measured: now, began: now, active: now} }

// measure averages what was asked, in millionths by a number of checks, both since the bucket was made.
func (d *demand) measure(now Instant, asked, count int64) {
	elapsed := float64(now.Mono - d.measured.Mono)
	if elapsed <= 0 {
		return
	}
	if count != d.count && d.isIdle(d.measured) {
		d.began = d.measured // the average begins anew: what came before the idle time says little
	}
	weight := max(1-math.Exp(-elapsed/float64(averaged)), elapsed/float64(now.Mono-d.began.Mono+int64(doubt)))
	perSecond := float64(time.Second) / elapsed
	d.tokens += (float64(asked-d.asked)*perSecond - d.tokens) * weight
	d.checks += (float64(count-d.count)*perSecond - d.checks) * weight
	if count != d.count {
		d.active = now
	}
	d.asked, d.count, d.measured = asked, count, now
}

// isIdle reports whether no check came for much longer than usual.
func (d *demand) isIdle(now Instant) bool {
	usual := float64(idleGaps*time.Second) / max(d.checks, 1)
	return now.Mono-d.active.Mono >= int64(min(max(usual, float64(leastIdle)), float64(mostIdle)))
}
