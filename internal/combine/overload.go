package combine

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	// overloadLasts is how long the store counts as overloaded after a call was shed.
	overloadLasts = time.Second
	// paceBudgets is over how many budgets the store's pace is averaged.
	paceBudgets = 2
	// admitShare is the part of the time for its turn that a call may be expected to wait. The pace varies, so many of those
	// expected to need all of it would be late.
	admitShare = 2
)

// ErrNoTurn fails a call that waited too long for its turn, and ErrOverloaded one that would have. They do not count as failures of
// the store.
var (
	ErrNoTurn     = fmt.Errorf("waited for a turn, and %w: %w", enforce.ErrNothingTaken, context.DeadlineExceeded)
	ErrOverloaded = fmt.Errorf("more waits for the store than it decides in time, and %w", enforce.ErrNothingTaken)
)

// overload refuses calls that would wait too long. Without it each of them waits for nothing, and its caller with it.
//
// It begins with a call that did wait too long here, because a long queue alone says little: a burst of checks is decided faster
// than the small batches before it. From then on it compares the queue with the pace of the store, until no call was
// shed for overloadLasts.
type overload struct {
	until  time.Time // zero if no call was shed lately
	shared time.Time // when several tenants last waited
	// tiers were decided in took, both of them fading.
	tiers, took float64
	ended       time.Time // of the last batch
}

func (o *overload) isOn(now time.Time) bool { return now.Before(o.until) }

// begin starts or prolongs it.
func (o *overload) begin(now time.Time) { o.until = now.Add(overloadLasts) }

// record notes what a batch has decided. Batches overlap, so each counts from the end of the one before.
func (o *overload) record(tiers int, sent, now time.Time, budget time.Duration) {
	from := sent
	if o.ended.After(from) {
		from = o.ended
	}
	fade := math.Exp(-float64(now.Sub(o.ended)) / float64(paceBudgets*budget))
	o.tiers, o.took, o.ended = o.tiers*fade+float64(tiers), o.took*fade+now.Sub(from).Seconds(), now
}

// within returns how many tiers the store decides in a time.
func (o *overload) within(d time.Duration) int {
	if o.took <= 0 {
		return math.MaxInt
	}
	return int(min(o.tiers/o.took*d.Seconds(), math.MaxInt32))
}

// refuses reports whether a call of a tenant would not be sent in time, as tenants take turns: until then no other tenant has more
// decided than this one.
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
		asked += len(c.checks[i].Tiers)
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

// fail sheds a call.
func (q *Combiner) fail(c *Call, err error) {
	c.Err = err
	if q.Shed != nil {
		q.Shed(len(c.checks), err == ErrOverloaded) //nolint:errorlint // it is one of the two
	}
}
