package redisbucket

import (
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// batch is what goes to a node in one round trip. Its memory is reused.
type batch struct {
	calls    []*call   // with the checks that each is sending
	tiers    int       // of all checks
	deadline time.Time // of the call that has waited longest
	sentAt   time.Time
	full     bool  // more checks waited than it had room for
	answered bool  // Redis answered, if only with an error
	err      error // why some checks have no answer

	scripts []*script
	open    map[int64]*script // the latest script of each tenant, or of all; unused for a single check
}

var batchPool = sync.Pool{New: func() any { return &batch{open: map[int64]*script{}} }}

// release makes the memory available again, unless the batch failed: then the driver might still read it.
func (b *batch) release() {
	if b.err != nil {
		return
	}
	for _, s := range b.scripts {
		s.reset("", s.single)
	}
	clear(b.calls[:cap(b.calls)])
	clear(b.open)
	b.calls, b.scripts, b.tiers, b.deadline = b.calls[:0], b.scripts[:0], 0, time.Time{}
	b.full, b.answered = false, false
	batchPool.Put(b)
}

// assignErrors gives each call with unanswered checks the error of their script, or else that of the batch.
func (b *batch) assignErrors() {
	scriptErrs := map[*enforce.BucketCheck]error{}
	for _, s := range b.scripts {
		if s.err != nil {
			for _, check := range s.checks {
				scriptErrs[check] = s.err
			}
		}
	}
	for _, c := range b.calls {
		for i := range c.sending {
			if check := &c.sending[i]; !check.Answered {
				if c.err = scriptErrs[check]; c.err == nil {
					c.err = b.err
				}
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
	for _, c := range b.calls {
		checks += len(c.sending)
	}
	for _, c := range b.calls {
		for i := range c.sending {
			check := &c.sending[i]
			if check.Answered {
				continue // before, or it has no tiers
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
