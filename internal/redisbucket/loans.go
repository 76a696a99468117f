package redisbucket

import (
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// reportAfter is how long spent tokens of loans wait for the next call about their bucket, before a call of its own reports them.
const reportAfter = 10 * time.Millisecond

// inOneReport caps the buckets of one call, so that Redis is never busy with one for long.
const inOneReport = 32

// loans are what was borrowed for checks and is not reported yet. It holds what a process borrows in reportAfter.
type loans struct {
	mu        sync.Mutex
	pending   map[enforce.Key]enforce.Lease // each with the Ask that reports
	flushing  *time.Timer                   // nil unless a flush is due
	isGiving  bool                          // a giveBack runs
	reporters sync.WaitGroup                // flushes that are due or run, and giveBack
}

// add notes what became of a loan.
func (l *loans) add(s *Store, lease *enforce.Lease, spent enforce.Tokens) {
	g := &lease.Grant
	if g.Amount == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(s, lease, g.Epoch, enforce.Return{Slot: g.Slot, Spent: spent, Back: g.Amount - spent})
}

// keep takes back what report moved into a call that was not executed.
func (l *loans) keep(s *Store, lease *enforce.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newer, ok := l.pending[lease.Key]
	if len(lease.Ask.Returns) > 0 && (!ok || newer.Ask.Epoch == lease.Ask.Epoch) {
		l.note(s, lease, lease.Ask.Epoch, lease.Ask.Returns...)
	}
}

// note adds returns of an epoch to what is to be reported of a bucket. Others wait for tokens that go back, so these are not kept for
// reportAfter. The caller holds mu.
func (l *loans) note(s *Store, lease *enforce.Lease, epoch int64, returns ...enforce.Return) {
	if l.pending == nil {
		l.pending = map[enforce.Key]enforce.Lease{}
	}
	ask := l.pending[lease.Key].Ask
	if ask.Epoch != epoch { // Redis ignores reports of another epoch
		ask = enforce.Ask{Epoch: epoch, Loan: true}
	}
	for _, r := range returns {
		at := slices.IndexFunc(ask.Returns, func(of enforce.Return) bool { return of.Slot == r.Slot })
		if at < 0 {
			at = len(ask.Returns)
			ask.Returns = append(ask.Returns, enforce.Return{Slot: r.Slot})
		}
		ask.Returns[at].Spent += r.Spent
		ask.Returns[at].Back += r.Back
	}
	l.pending[lease.Key] = enforce.Lease{Key: lease.Key, Limit: lease.Limit, Ask: ask}
	switch {
	case givesBack(ask) && !l.isGiving:
		l.isGiving = true
		l.reporters.Go(func() { l.giveBack(s) })
	case l.flushing == nil: // also if calls took away what it was for
		l.reporters.Add(1)
		l.flushing = time.AfterFunc(reportAfter, func() { l.flush(s) })
	}
}

func givesBack(ask enforce.Ask) bool {
	return slices.ContainsFunc(ask.Returns, func(r enforce.Return) bool { return r.Back > 0 })
}

// report moves what is to be reported of a bucket into a call about it.
func (l *loans) report(lease *enforce.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pending, ok := l.pending[lease.Key]; ok {
		lease.Ask.Epoch, lease.Ask.Returns = pending.Ask.Epoch, pending.Ask.Returns
		delete(l.pending, lease.Key)
	}
}

// flush reports everything, reportAfter after the first of it was noted.
func (l *loans) flush(s *Store) {
	defer l.reporters.Done()
	l.mu.Lock()
	pending := l.pending
	l.pending, l.flushing = nil, nil
	l.mu.Unlock()
	sendReports(s, pending)
}

// giveBack reports buckets to which tokens go back, until there are none. What comes meanwhile shares the next calls, so a process has
// one such report of a bucket in flight. If that takes longer than reportAfter, flush does not wait for it.
func (l *loans) giveBack(s *Store) {
	for {
		l.mu.Lock()
		due := map[enforce.Key]enforce.Lease{}
		for key, lease := range l.pending {
			if givesBack(lease.Ask) {
				due[key] = lease
				delete(l.pending, key)
			}
		}
		l.isGiving = len(due) > 0
		l.mu.Unlock()
		if len(due) == 0 {
			return
		}
		sendReports(s, due)
	}
}

// close reports what is left, and waits for all reports. No check may be in flight.
func (l *loans) close(s *Store) {
	l.mu.Lock()
	if l.flushing != nil && l.flushing.Stop() {
		l.reporters.Done()
	}
	pending := l.pending
	l.pending, l.flushing = nil, nil
	l.mu.Unlock()
	sendReports(s, pending)
	l.reporters.Wait()
}

// sendReports reports loans, each tenant's in its own turns, so that none is shed with the checks of another. What is lost on the way
// is not repeated.
func sendReports(s *Store, pending map[enforce.Key]enforce.Lease) {
	bySlot := map[slotOf][]enforce.Lease{}
	for key, lease := range pending {
		slot := slotOf{key.Tenant, key.Shard}
		bySlot[slot] = append(bySlot[slot], lease)
	}
	calls := map[rules.TenantID][]enforce.BucketCheck{}
	for slot, leases := range bySlot {
		for some := range slices.Chunk(leases, inOneReport) {
			calls[slot.tenant] = append(calls[slot.tenant], leaseCall(some))
		}
	}
	var tenants sync.WaitGroup
	for _, of := range calls {
		tenants.Go(func() { _ = s.submit(of) }) // a report that is lost is forgotten by Redis
	}
	tenants.Wait()
}
