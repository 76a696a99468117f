package redisbucket

import (
	"errors"
	"sync"

	"github.com/sluicegate/sluice/internal/combine"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// batch is what goes to a node in one round trip. Its memory is reused.
type batch struct {
	*combine.Batch
	scripts []*script
	open    map[slotOf]*script // the latest script of each slot, or of all; unused for a single check
	lends   map[slotOf]*script // the latest call of lease.lua of each slot
}

// slotOf names the buckets that are surely in one slot of a Redis Cluster.
type slotOf struct {
	tenant rules.TenantID
	shard  uint8
}

var batchPool = sync.Pool{New: func() any { return &batch{open: map[slotOf]*script{}, lends: map[slotOf]*script{}} }}

// release makes the memory available again, unless the batch failed: then the driver might still read it.
func (b *batch) release() {
	if b.Err != nil {
		return
	}
	for _, s := range b.scripts {
		s.reset("", s.single)
	}
	clear(b.open)
	clear(b.lends)
	b.Batch, b.scripts = nil, b.scripts[:0]
	batchPool.Put(b)
}

// assignErrors gives each call with unanswered checks the error of one of them. If tokens may have been taken for any, it is the error
// of such a check, because the caller may repeat checks after the others. Next come errors that name the node to ask instead.
func (b *batch) assignErrors() {
	scriptErrs := map[*enforce.BucketCheck]error{}
	for _, s := range b.scripts {
		if s.err != nil {
			for _, check := range s.checks {
				scriptErrs[check] = s.err
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

// urgency orders errors; a call fails with the most urgent.
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

// splittable returns the scripts that Redis did not run because their keys are in several slots, or on both sides of a slot that
// moves, and that are of several checks or leases. Some of these may be decided one by one.
func (b *batch) splittable() (refused []*script) {
	for _, s := range b.scripts {
		if (isCrossSlot(s.err) || isTryAgain(s.err)) && max(len(s.checks), len(s.leases)) > 1 {
			refused = append(refused, s)
		}
	}
	return refused
}

// split makes a script for each check and each lease of refused scripts.
func (b *batch) split(prefix string, refused []*script) []*script {
	first := len(b.scripts)
	for _, r := range refused {
		r.err = nil
		for _, check := range r.checks {
			if check.Leases == nil {
				b.newScript(prefix, true).add(check)
			}
			for i := range check.Leases {
				if check.Leases[i].Answered {
					continue
				}
				b.newScript(prefix, false).addLeases(check, check.Leases[i:i+1])
			}
		}
	}
	return b.scripts[first:]
}

// pack puts the batch's unanswered checks into as few scripts as hold them, in order within each tenant. With apart,
// each script holds checks of one tenant, and of one shard.
func (b *batch) pack(prefix string, apart bool) []*script {
	b.scripts = b.scripts[:0]
	clear(b.open)
	clear(b.lends)
	checks := 0
	for _, c := range b.Calls {
		checks += len(c.Sending)
	}
	for _, c := range b.Calls {
		for i := range c.Sending {
			check := &c.Sending[i]
			if check.Answered {
				continue // before, or it has no tiers
			}
			if check.Leases != nil {
				slot := slotOf{check.Tiers[0].Key.Tenant, check.Tiers[0].Key.Shard}
				if s := b.lends[slot]; s == nil || !s.addLeases(check, check.Leases) {
					s = b.newScript(prefix, false)
					s.addLeases(check, check.Leases)
					b.lends[slot] = s
				}
				continue
			}
			slot := slotOf{} // all of them
			if key := &check.Tiers[0].Key; apart {
				slot = slotOf{key.Tenant, key.Shard}
			}
			if s := b.open[slot]; s != nil && s.add(check) {
				continue
			}
			s := b.newScript(prefix, checks == 1)
			s.add(check)
			if checks > 1 {
				b.open[slot] = s
			}
		}
	}
	return b.scripts
}

// newScript appends an empty script, in memory of an earlier one if there is any.
func (b *batch) newScript(prefix string, single bool) *script {
	n := len(b.scripts)
	if n < cap(b.scripts) && b.scripts[:n+1][n] != nil {
		b.scripts = b.scripts[:n+1]
	} else {
		b.scripts = append(b.scripts, &script{})
	}
	b.scripts[n].reset(prefix, single)
	return b.scripts[n]
}
