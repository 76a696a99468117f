package replay

import (
	"context"
	"time"
)

// Turns lets replays share half of one processor. A turn is a block or a window of traffic, in order of arrival, so a
// long replay delays another by one piece only.
type Turns struct {
	place chan struct{}
	owed  time.Duration // by the job that has the turn: how long it must rest
}

// NewTurns returns Turns to share.
func NewTurns() *Turns { return &Turns{place: make(chan struct{}, 1)} }

const shortestRest = 50 * time.Millisecond

// take waits for a turn. done ends it, after a pause as long as the work.
func (t *Turns) take(ctx context.Context) (done func(), err error) {
	if t == nil {
		return func() {}, ctx.Err()
	}
	select {
	case t.place <- struct{}{}: // the runtime serves those who wait in their order
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	return func() {
		if t.owed += time.Since(began); t.owed > shortestRest {
			select {
			case <-ctx.Done():
			case <-time.After(t.owed):
			}
			t.owed = 0
		}
		<-t.place
	}, nil
}
