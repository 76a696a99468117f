package enforce

import (
	"cmp"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// scratch is the reusable memory of one Decide: the checks that it sends to the shared buckets.
type scratch struct {
	checks   []BucketCheck
	indices  []int // checks[k] is for Decide's check at indices[k]
	tiers    []Tier
	tierEnds []int // of each check's tiers in tiers
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) add(tenant *snapshot.Tenant, index int, check *Check, tiers []TierDecision) {
	before := len(s.tiers)
	s.tiers = bucketTiers(tenant, tiers, s.tiers)
	if len(s.tiers) > before {
		s.checks = append(s.checks, bucketCheck(tenant, check, s.tiers[before:]))
		s.indices = append(s.indices, index)
		s.tierEnds = append(s.tierEnds, len(s.tiers))
	}
}

// bucketChecks points the checks at their tiers, once appending moves these no more, and returns them.
func (s *scratch) bucketChecks() []BucketCheck {
	start := 0
	for k, end := range s.tierEnds {
		s.checks[k].Tiers = s.tiers[start:end:end]
		start = end
	}
	return s.checks
}

// release gives the memory back, except that of large batches.
func (s *scratch) release() {
	if cap(s.checks) > keptChecks {
		return
	}
	clear(s.checks)
	clear(s.tiers)
	s.checks, s.indices, s.tiers, s.tierEnds = s.checks[:0], s.indices[:0], s.tiers[:0], s.tierEnds[:0]
	scratches.Put(s)
}

// keptChecks is the largest scratch that is reused.
const keptChecks = 64

// bucketCheck returns a check as a store sees it. Its tiers are set by the caller.
func bucketCheck(tenant *snapshot.Tenant, check *Check, tiers []Tier) BucketCheck {
	b := BucketCheck{Cost: check.Cost, ReadAt: tenant.ReadAt(), NoDelay: check.Proxied}
	life, isOptional := time.Duration(0), !check.Reserve
	if check.Reserve {
		life = cmp.Or(check.ReserveFor, DefaultReserveFor)
	}
	for i := range tiers {
		if limit := &tiers[i].Limit; limit.Kind == rules.KindConcurrency && check.Cost > 0 {
			life = max(life, time.Duration(limit.Interval)*time.Microsecond)
			isOptional = isOptional && tiers[i].Shadow
		}
	}
	if life > 0 {
		b.Reserve = &Reservation{ID: newReservationID(), Life: life, Key: check.Key, Optional: isOptional}
		b.Holder = b.Reserve.ID.Holder()
	}
	return b
}

func bucketTiers(tenant *snapshot.Tenant, tiers []TierDecision, dst []Tier) []Tier {
	for i := range tiers {
		m := tiers[i].Match
		if !isLimit(m) {
			continue
		}
		if dst == nil {
			dst = make([]Tier, 0, len(tiers)-i)
		}
		dst = append(dst, Tier{
			Key:        KeyOf(&tenant.Tenant, m),
			Limit:      m.Limit,
			Shadow:     m.Mode == rules.ModeShadow,
			NeverLease: m.Rule.NeverLeased,
		})
	}
	return dst
}
