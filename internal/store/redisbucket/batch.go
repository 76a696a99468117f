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
	scripts []*script
	open    map[rules.TenantID]*script // the latest script of each tenant, or of all at 0; unused for a single check
	lends   map[rules.TenantID]*script // the latest call of lend.lua of each tenant
}

var batchPool = sync.Pool{New: func() any {
	return &batch{open: map[rules.TenantID]*script{}, lends: map[rules.TenantID]*script{}}
}}

// release drops a failed batch, whose memory the driver may still read.
func (b *batch) release() {
	if b.Err != nil {
		return
	}
	for _, s := range b.scripts {
		s.reset(nil, s.single)
	}
	clear(b.open)
	clear(b.lends)
	b.Batch, b.scripts = nil, b.scripts[:0]
	batchPool.Put(b)
}

// assignErrors prefers errors after which tokens may have been taken, because callers must not repeat such checks.
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
func (b *batch) splittable() (refused []*script) {
	for _, s := range b.scripts {
		if (isCrossSlot(s.err) || isTryAgain(s.err)) && max(len(s.checks), len(s.leases)) > 1 {
			refused = append(refused, s)
		}
	}
	return refused
}

func (b *batch) split(store *Store, refused []*script) []*script {
	first := len(b.scripts)
	for _, r := range refused {
		r.err = nil
		for _, check := range r.checks {
			leases, isLease := check.Call.([]enforce.Lease)
			if !isLease {
				b.newScript(store, true).add(check)
			}
			for i := range leases {
				if leases[i].Answered {
					continue
				}
				b.newScript(store, false).addLeases(check, leases[i:i+1])
			}
		}
	}
	return b.scripts[first:]
}

// pack fills as few scripts as possible, in order within each tenant; apart: with one tenant each.
func (b *batch) pack(store *Store, apart bool) []*script {
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
				continue // before this attempt, or without tiers
			}
			switch c := check.Call.(type) {
			case []enforce.Lease:
				tenant := check.Tiers[0].Key.Tenant
				if s := b.lends[tenant]; s == nil || !s.addLeases(check, c) {
					s = b.newScript(store, false)
					s.addLeases(check, c)
					b.lends[tenant] = s
				}
				continue
			case *call:
				s := b.newScript(store, true)
				s.checks, s.call = append(s.checks, check), c
				continue
			}
			tenant := rules.TenantID(0) // all of them
			if apart {
				tenant = check.Tiers[0].Key.Tenant
			}
			if s := b.open[tenant]; s != nil && s.add(check) {
				continue
			}
			s := b.newScript(store, checks == 1)
			s.add(check)
			if checks > 1 {
				b.open[tenant] = s
			}
		}
	}
	return b.scripts
}

func (b *batch) newScript(store *Store, single bool) *script {
	n := len(b.scripts)
	if n < cap(b.scripts) && b.scripts[:n+1][n] != nil {
		b.scripts = b.scripts[:n+1]
	} else {
		b.scripts = append(b.scripts, &script{})
	}
	b.scripts[n].reset(store, single)
	return b.scripts[n]
}
