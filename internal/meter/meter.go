// Package meter measures the work of a request: the time for which it keeps a processor busy, here or in the database.
// Waits are no work: those for a place, for the network, for the caller.
//
// What a request costs must not depend on what others do meanwhile; else a greedy caller would use up everybody's
// allowance. Go cannot tell the processor time of a goroutine, and PostgreSQL does not tell that of a query. So both
// are measured on the clock, and the delay that other requests cause is subtracted:
//
//   - In this process, requests that compute at the same time share the processor time that the process really got; see
//     [Processors]. Their charges add up to that time.
//   - In the database, a query costs its time less the usual time of a lookup by key; see [Usual]. Busy processors and a
//     slow network delay both queries and lookups, so the difference is work. So does a moment in which the database stands
//     still, such as a checkpoint on a slow disk.
//
// The cost of queries is right on average only. A query that is faster than usual has a negative cost, so the work of a
// request can be negative. Callers that add up costs must add negative ones too, or quick queries would never make up for slow ones.
//
// The context of a request carries its [Meter]. Code that waits for a request calls [Wait], and code that queries the
// database calls [Ask]. Without a Meter in the context both do nothing.
package meter

import (
	"context"
	"sync"
	"time"
)

// Meter measures one request. It is safe for concurrent use.
type Meter struct {
	processors *Processors

	mu     sync.Mutex
	away   int           // waits and queries under way; while there are some, the request does not compute
	since  time.Duration // when it began to compute, as processors count
	here   time.Duration // that it computed before
	remote time.Duration // that the database worked
}

type meterKey struct{}

// With returns a context whose work a new Meter measures until its End.
func With(ctx context.Context, processors *Processors) (context.Context, *Meter) {
	m := &Meter{processors: processors, since: processors.begin()}
	return context.WithValue(ctx, meterKey{}, m), m
}

// Wait begins a wait, which is no work. ended must be called once.
func Wait(ctx context.Context) (ended func()) {
	m, ok := ctx.Value(meterKey{}).(*Meter)
	if !ok {
		return func() {}
	}
	m.leave()
	return func() { m.comeBack(0) }
}

// Ask begins a query. answered must be called once, with the database's work.
func Ask(ctx context.Context) (answered func(work time.Duration)) {
	m, ok := ctx.Value(meterKey{}).(*Meter)
	if !ok {
		return func(time.Duration) {}
	}
	m.leave()
	return m.comeBack
}

func (m *Meter) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away++; m.away == 1 {
		m.here += m.processors.end() - m.since
	}
}

func (m *Meter) comeBack(worked time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remote += worked
	if m.away--; m.away == 0 {
		m.since = m.processors.begin()
	}
}

// End ends the request. What still runs in its name is not measured as work here.
func (m *Meter) End() { m.leave() }

// Worked returns the work so far. Queries in parallel count in full.
func (m *Meter) Worked() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	worked := m.here + m.remote
	if m.away == 0 {
		worked += m.processors.now() - m.since
	}
	return worked
}
