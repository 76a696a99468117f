package combine

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	overloadLasts = time.Second
	paceBudgets   = 2
	// admitShare of its turn is what a call may be expected to queue: the pace varies.
	admitShare = 2
)

// ErrNoTurn fails calls that queued too long, ErrOverloaded those that would; neither is the store's failure.
var (
	ErrNoTurn = fmt.Errorf("the check waited too long for its turn; %w: %w", enforce.ErrNothingTaken,
		context.DeadlineExceeded)
	ErrOverloaded = fmt.Errorf("the store has more queued checks than it decides in time; %w", enforce.ErrNothingTaken)
)

// overload refuses calls that would queue too long.
//
// An overload begins with a call that did: a long queue alone is no sign, because bursts are decided faster than
// batches before. Until overloadLasts after the last shed call, the queue is compared with the store's pace.
type overload struct {
	until       time.Time // zero if no call was shed lately
	shared      time.Time // when several tenants last waited
	tiers, took float64
	ended       time.Time // of the last batch
}

func (o *overload) isOn(now time.Time) bool { return now.Before(o.until) }

func (o *overload) begin(now time.Time) { o.until = now.Add(overloadLasts) }

// Batches overlap, so each counts from the end of the one before.
func (o *overload) record(tiers int, sent, now time.Time, budget time.Duration) {
	from := sent
	if o.ended.After(from) {
		from = o.ended
	}
	fade := math.Exp(-float64(now.Sub(o.ended)) / float64(paceBudgets*budget))
	o.tiers, o.took, o.ended = o.tiers*fade+float64(tiers), o.took*fade+now.Sub(from).Seconds(), now
}

func (o *overload) within(d time.Duration) int {
	if o.took <= 0 {
		return math.MaxInt
	}
	return int(min(o.tiers/o.took*d.Seconds(), math.MaxInt32))
}

func (q *Combiner) refuses(c *Call, now time.Time) bool {
	if !q.overload.isOn(now) {
		return false
	}
	own, turn := 0, q.turn(now.Sub(q.overload.shared) < overloadLasts, c.tenant)/admitShare
	if f := q.waiting.flowOf(c.tenant); f != nil {
		own = f.tiers
	}
	asked := 0
	for i := 0; i < len(c.checks) && asked < quantum; i++ { // the call's other checks may come later
		asked += q.Weight(&c.checks[i])
	}
	own += asked
	room := q.overload.within(turn) - own
	for f := q.waiting.first; f != nil && room >= 0; f = f.next {
		if f.tenant != c.tenant {
			room -= min(f.tiers, own)
		}
	}
	return room < 0
}

func (q *Combiner) fail(c *Call, err error) {
	c.Err = err
	if q.Shed != nil {
		q.Shed(len(c.checks), err == ErrOverloaded) //nolint:errorlint // it is one of the two
	}
}
