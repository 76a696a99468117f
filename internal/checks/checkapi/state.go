package checkapi

import "time"

type phase int64

const (
	silent    phase = iota // before the first request
	idle                   // between requests
	busy                   // a request is read from memory or answered
	waiting                // for the rest of a request
	writing                // an answer
	ended                  // the server closed the connection
	phaseMask = 7
)

// connState is a phase and the start of its wait since the server began, to 8 ns, in one number so that both change
// atomically.
type connState int64

func stateOf(p phase, since time.Duration) connState {
	return connState(int64(since)&^phaseMask | int64(p))
}

func (s connState) phase() phase         { return phase(s & phaseMask) }
func (s connState) since() time.Duration { return time.Duration(s &^ phaseMask) }

func (s connState) with(p phase) connState { return s&^phaseMask | connState(p) }

// evictable: closing the connection loses no decision, because it waits for its caller.
func (s connState) evictable(now time.Duration) bool {
	switch s.phase() {
	case silent, idle, waiting:
		return true
	case writing:
		return now-s.since() >= slowCaller
	}
	return false
}

// late reports whether a shutdown ends the connection. An answer, whose tokens are taken, can be read until the
// shutdown is nearly over.
func (s connState) late(now time.Duration, nearlyOver bool) bool {
	switch s.phase() {
	case writing:
		return nearlyOver && s.evictable(now)
	case waiting:
		return now-s.since() >= slowCaller
	}
	return s.evictable(now)
}

func (c *conn) enter(p phase) bool {
	for {
		old := connState(c.state.Load())
		if old.phase() == ended {
			return false
		}
		if c.state.CompareAndSwap(int64(old), int64(old.with(p))) {
			return true
		}
	}
}

func (c *conn) enterAt(p phase, now time.Time) bool {
	for {
		old := connState(c.state.Load())
		if old.phase() == ended {
			return false
		}
		if c.state.CompareAndSwap(int64(old), int64(stateOf(p, now.Sub(c.server.began)))) {
			return true
		}
	}
}

func (c *conn) endFrom(seen connState) bool {
	if !c.state.CompareAndSwap(int64(seen), int64(seen.with(ended))) {
		return false
	}
	_ = c.raw.Close()
	return true
}
