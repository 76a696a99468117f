package simulate

import (
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// drawTo draws a tier's bucket up to a moment before which nothing was taken since it was last drawn.
func (s *simulator) drawTo(i int, at time.Duration) {
	bucket := &s.drawn[i]
	// After so many steps the rest is one straight line, which is what they look like.
	for range maxPoints {
		next, jumps := s.nextTurn(i)
		if next == 0 || next >= at {
			break
		}
		before := left(bucket)
		bucket.Settle(bucket.Limit, 0, next.Microseconds())
		if jumps {
			s.curves[i].add(Point{next, before})
		}
		s.curves[i].add(Point{next, left(bucket)})
	}
	if _, jumps := s.nextTurn(i); jumps {
		s.curves[i].add(Point{at, left(bucket)})
	}
	bucket.Settle(bucket.Limit, 0, at.Microseconds())
	s.curves[i].add(Point{at, left(bucket)})
}

// nextTurn returns when the line of a tier's settled bucket next turns: where it is full, and for what comes in steps where the next
// step is, at which the line jumps. It returns 0 for a bucket that stays as it is.
func (s *simulator) nextTurn(i int) (at time.Duration, jumps bool) {
	bucket := &s.drawn[i]
	full := bucket.TimeToFull()
	if full == 0 {
		return 0, false
	}
	stamp := time.Duration(bucket.Stamp) * time.Microsecond
	limit := bucket.Limit
	switch {
	case limit.Kind == rules.KindSlidingWindow: // what the former window used fades until this window ends
		_, end := limit.WindowAt(bucket.Stamp)
		return time.Duration(end) * time.Microsecond, false
	case limit.Kind == rules.KindConcurrency: // nobody releases a place here
		for s.ends[i][0] <= stamp {
			s.ends[i] = s.ends[i][1:]
		}
		return s.ends[i][0], true
	case limit.Kind == rules.KindFixedWindow, limit.Kind == rules.KindSlidingWindowLog, limit.Kind == rules.KindTokenBucket && limit.Interval > 0:
		wait, _ := bucket.Wait(min(capacity(limit), left(bucket)+enforce.Token))
		return stamp + wait, true
	}
	return stamp + full, false
}

// left is what can be taken of a settled bucket.
func left(bucket *enforce.State) enforce.Tokens { return bucket.View().Level.Micros }
