package redisbucket

import (
	"errors"
	"sync"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/combine"
)

type batch struct {
	*combine.Batch
	scripts []script
	takes   reused[takeScript]
	lends   reused[leaseScript]
	open    map[rules.TenantID]*takeScript  // the latest of each tenant, or of all at 0; unused for a single check
	lending map[rules.TenantID]*leaseScript // the latest of each tenant
}

// reused hands out values whose memory later batches use again.
type reused[T any] struct {
	all  []*T
	used int
}

func (r *reused[T]) next() *T {
	if r.used == len(r.all) {
		r.all = append(r.all, new(T))
	}
	r.used++
	return r.all[r.used-1]
}

var batchPool = sync.Pool{New: func() any { return newBatch() }}

func newBatch() *batch {
	return &batch{open: map[rules.TenantID]*takeScript{}, lending: map[rules.TenantID]*leaseScript{}}
}

// release drops a failed batch, whose memory the driver may still read.
func (b *batch) release() {
	if b.Err != nil {
		return
	}
	for _, s := range b.takes.all[:b.takes.used] {
		s.reset(nil, s.single)
	}
	for _, s := range b.lends.all[:b.lends.used] {
		s.reset(nil)
	}
	b.takes.used, b.lends.used = 0, 0
	clear(b.open)
	clear(b.lending)
	clear(b.scripts)
	b.Batch, b.scripts = nil, b.scripts[:0]
	batchPool.Put(b)
}

// assignErrors prefers errors after which tokens may have been taken, because callers must not repeat such checks.
func (b *batch) assignErrors() {
	scriptErrs := map[*enforce.BucketCheck]error{}
	for _, s := range b.scripts {
		if r := s.run(); r.err != nil {
			for _, check := range r.checks {
				scriptErrs[check] = r.err
			}
		}
	}
	for _, c := range b.Calls {
		for i := range c.Sending {
			if check := &c.Sending[i]; !check.Answered && urgency(scriptErrs[check]) > urgency(c.Err) {
				c.Err = scriptErrs[check]
			}
		}
	}
}

func urgency(err error) int {
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, enforce.ErrNothingTaken):
		return 3
	case isRedirect(err):
		return 2
	}
	return 1
}

// splittable returns scripts refused for keys in several slots, whose checks may pass alone.
func (b *batch) splittable() (refused []script) {
	for _, s := range b.scripts {
		if err := s.run().err; (isCrossSlot(err) || isTryAgain(err)) && s.parts() > 1 {
			refused = append(refused, s)
		}
	}
	return refused
}

func (b *batch) split(store *Store, refused []script) []script {
	first := len(b.scripts)
	for _, s := range refused {
		s.run().err = nil
		for _, check := range s.run().checks {
			leases, isLease := check.Call.([]enforce.Lease)
			if !isLease {
				b.newTake(store, true).add(check)
			}
			for i := range leases {
				if !leases[i].Answered {
					b.newLease(store).add(check, leases[i:i+1])
				}
			}
		}
	}
	return b.scripts[first:]
}

// pack fills as few scripts as possible, in order within each tenant; apart: with one tenant each.
func (b *batch) pack(store *Store, apart bool) []script {
	checks := 0
	for _, c := range b.Calls {
		checks += len(c.Sending)
	}
	for _, c := range b.Calls {
		for i := range c.Sending {
			check := &c.Sending[i]
			if check.Answered {
				continue // before this attempt, or without tiers
			}
			switch c := check.Call.(type) {
			case []enforce.Lease:
				b.packLeases(store, check, c)
			case *call:
				c.reset()
				c.checks = append(c.checks, check)
				b.scripts = append(b.scripts, c)
			default:
				b.packCheck(store, check, apart, checks == 1)
			}
		}
	}
	return b.scripts
}

func (b *batch) packLeases(store *Store, check *enforce.BucketCheck, leases []enforce.Lease) {
	tenant := check.Tiers[0].Key.Tenant
	if s := b.lending[tenant]; s == nil || !s.add(check, leases) {
		s = b.newLease(store)
		s.add(check, leases)
		b.lending[tenant] = s
	}
}

func (b *batch) packCheck(store *Store, check *enforce.BucketCheck, apart, single bool) {
	tenant := rules.TenantID(0) // all of them
	if apart {
		tenant = check.Tiers[0].Key.Tenant
	}
	if s := b.open[tenant]; s != nil && s.add(check) {
		return
	}
	s := b.newTake(store, single)
	s.add(check)
	if !single {
		b.open[tenant] = s
	}
}

func (b *batch) newTake(store *Store, single bool) *takeScript {
	s := b.takes.next()
	s.reset(store, single)
	b.scripts = append(b.scripts, s)
	return s
}

func (b *batch) newLease(store *Store) *leaseScript {
	s := b.lends.next()
	s.reset(store)
	b.scripts = append(b.scripts, s)
	return s
}
