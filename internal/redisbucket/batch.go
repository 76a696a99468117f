package redisbucket

import (
	"sync"

	"github.com/sluicegate/sluice/internal/combine"
	"github.com/sluicegate/sluice/internal/enforce"
)

// batch is what goes to a node in one round trip. Its memory is reused.
type batch struct {
	*combine.Batch
	scripts []*script
	open    map[int64]*script // the latest script of each tenant, or of all; unused for a single check
}

var batchPool = sync.Pool{New: func() any { return &batch{open: map[int64]*script{}} }}

// release makes the memory available again, unless the batch failed: then the driver might still read it.
func (b *batch) release() {
	if b.Err != nil {
		return
	}
	for _, s := range b.scripts {
		s.reset("", s.single)
	}
	clear(b.open)
	b.Batch, b.scripts = nil, b.scripts[:0]
	batchPool.Put(b)
}

// assignErrors gives each call with unanswered checks the error of their script, if there is one.
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
			if check := &c.Sending[i]; !check.Answered {
				c.Err = scriptErrs[check]
				break
			}
		}
	}
}

// pack puts the batch's unanswered checks into as few scripts as hold them, in order within each tenant. With apart,
// each script holds checks of one tenant.
func (b *batch) pack(prefix string, apart bool) []*script {
	b.scripts = b.scripts[:0]
	clear(b.open)
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
				b.newScript(prefix, true).addLeases(check)
				continue
			}
			tenant := int64(0) // all of them
			if apart {
				tenant = int64(check.Tiers[0].Key.Tenant)
			}
			if s := b.open[tenant]; s != nil && s.add(check) {
				continue
			}
			s := b.newScript(prefix, checks == 1)
			s.add(check)
			if checks > 1 {
				b.open[tenant] = s
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
