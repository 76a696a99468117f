package meter

import (
	"sync"
	"time"
)

// Processors divides the processor time of the process among the requests that compute. It keeps a clock that runs slower
// while they have to wait for processors: if three compute and the process gets one second of processor time a second,
// the clock advances by a third. A request is charged for the time that passes on that clock.
//
// The rate of the clock is measured over stretches in which requests computed for measured altogether, and holds for the
// next one. Being a mean, it is too fast for a request that competes with more than the mean, but never twice as fast as
// right where one other computes all the time. Other work of the process, such as collecting garbage, counts as the
// requests', which makes it faster too. It never runs faster than time.
type Processors struct {
	used func() time.Duration // processor time of the process since its start

	mu        sync.Mutex
	computing int           // requests
	at        time.Time     // of what follows
	clock     time.Duration // of this clock
	rate      float64
	computed  time.Duration // on the wall clock, by all requests in this stretch
	usedThen  time.Duration // when the stretch began
}

// measured is long enough for the kernel to have counted the time of running threads, which it does at its ticks.
const measured = 100 * time.Millisecond

// NewProcessors returns Processors. used returns the processor time that the process has used; [Used] does.
func NewProcessors(used func() time.Duration) *Processors {
	return &Processors{used: used, at: time.Now(), rate: 1, usedThen: used()}
}

// begin says that a request begins to compute, end that it ends. Both return the clock, and so does now.
func (p *Processors) begin() time.Duration { return p.add(1) }
func (p *Processors) end() time.Duration   { return p.add(-1) }
func (p *Processors) now() time.Duration   { return p.add(0) }

func (p *Processors) add(requests int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	passed := now.Sub(p.at)
	p.at = now
	p.computed += passed * time.Duration(p.computing)
	p.computing += requests
	if p.computed >= measured {
		used := p.used()
		p.rate = min(1, float64(used-p.usedThen)/float64(p.computed))
		p.computed, p.usedThen = 0, used
	}
	p.clock += time.Duration(float64(passed) * p.rate)
	return p.clock
}
