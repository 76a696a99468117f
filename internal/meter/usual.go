package meter

import (
	"sync"
	"time"
)

// Usual is how long the database takes at present to answer a lookup by key, the network included: hardly any work and
// all the delay. It is safe for concurrent use; the zero value knows nothing yet.
//
// It is the mean, and not the fastest or a high percentile. So the delays of many queries cancel out, and a caller that
// makes the database slow gains nothing: its own queries are delayed by what is subtracted at least.
//
// When the database or the machine stands still for a moment, the queries under way then are delayed by more than the
// mean. So one that takes much longer than usual is compared with the longest lookup meanwhile, if that took half of
// the query's time at least. A lookup that took
// less may be slow because of that query's work, which stays charged.
type Usual struct {
	mu      sync.Mutex
	mean    time.Duration
	known   bool
	running map[*Query]struct{} // lookups
	ended   [256]span           // the latest lookups, in a ring
	next    int                 // in the ring
}

// Query is a query under way.
type Query struct {
	began    time.Time
	isLookup bool
}

type span struct{ began, ended time.Time }

const (
	// recent is about how many answers the mean is of.
	recent = 16
	// muchLonger is how much longer than usual, and manyTimes how many times as long, a query takes that does much work or
	// was held up. Delays that vary by chance are hardly ever as long.
	muchLonger = 50 * time.Millisecond
	manyTimes  = 8
)

// Begin begins a query. A lookup reads one row by its key.
func (u *Usual) Begin(isLookup bool) *Query {
	u.mu.Lock()
	defer u.mu.Unlock()
	q := &Query{time.Now(), isLookup}
	if isLookup {
		if u.running == nil {
			u.running = map[*Query]struct{}{}
		}
		u.running[q] = struct{}{}
	}
	return q
}

// End ends a query and returns how much longer than usual it took. isAnswered is false if the query failed, maybe without
// an answer.
func (u *Usual) End(q *Query, isAnswered bool) (work time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	took := now.Sub(q.began)
	usual := u.mean
	long := usual + max(muchLonger, manyTimes*usual)
	if took > long {
		if longest := u.longest(span{q.began, now}); longest >= took/2 {
			usual = max(usual, longest)
		}
	}
	delete(u.running, q)
	if q.isLookup && isAnswered {
		u.ended[u.next] = span{q.began, now}
		u.next = (u.next + 1) % len(u.ended)
		if !u.known {
			u.mean, u.known, long = took, true, took
		}
		u.mean += (min(took, long) - u.mean) / recent
	}
	return took - usual
}

// longest returns for how much of a stretch one lookup ran at most.
func (u *Usual) longest(of span) (longest time.Duration) {
	during := func(s span) time.Duration {
		if s.began.Before(of.began) {
			s.began = of.began
		}
		if s.ended.After(of.ended) {
			s.ended = of.ended
		}
		return s.ended.Sub(s.began)
	}
	for _, lookup := range u.ended {
		longest = max(longest, during(lookup))
	}
	for q := range u.running {
		longest = max(longest, during(span{q.began, of.ended}))
	}
	return longest
}
