package enforce

import (
	"cmp"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

type scratch struct {
	checks   []BucketCheck
	froms    []int // checks[k] is for the group of Decide's checks that begins at froms[k]
	tiers    []Tier
	tierEnds []int       // of each check's tiers in tiers
	indexes  map[Key]int // in tiers, for a group of several checks
	own      []Tier      // of one check of a group
}

var scratches = sync.Pool{New: func() any { return &scratch{indexes: map[Key]int{}} }}

func (s *scratch) add(tenant *snapshot.Tenant, from int, checks []Check, decisions []Decision) {
	before := len(s.tiers)
	var group BucketCheck
	if len(checks) == 1 {
		s.tiers = bucketTiers(tenant, &checks[0], decisions[0].Tiers, s.tiers)
		group = bucketCheck(tenant, &checks[0], s.tiers[before:])
		isUndecided := !decisions[0].isDenied() && !decisions[0].isUncharged
		if len(s.tiers) == before && isUndecided && (group.Reserve != nil || group.HasRecordID()) {
			s.tiers = append(s.tiers, untouched(tenant.Tenant.ID))
		}
	} else {
		group = s.merge(tenant, checks, decisions)
	}
	if len(s.tiers) > before {
		s.checks = append(s.checks, group)
		s.froms = append(s.froms, from)
		s.tierEnds = append(s.tierEnds, len(s.tiers))
	}
}

func untouched(tenant rules.TenantID) Tier {
	slots := Limit{Kind: rules.KindConcurrency, Burst: 1, Interval: MaxReserveFor.Microseconds()}
	return Tier{Key: Key{Tenant: tenant}, Limit: slots, Shadow: true, NeverLease: true}
}

// merge adds the tiers of undenied checks, each bucket once at its largest cost; after a denial the group only looks.
func (s *scratch) merge(tenant *snapshot.Tenant, checks []Check, decisions []Decision) (group BucketCheck) {
	group.ReadAt = tenant.ReadAt()
	before := len(s.tiers)
	for i := range decisions {
		group.NoDelay, group.Record = group.NoDelay || checks[i].Proxied, group.Record || checks[i].Record
		if decisions[i].isDenied() || decisions[i].isUncharged {
			group.Look = true
			continue
		}
		s.own = bucketTiers(tenant, &checks[i], decisions[i].Tiers, s.own[:0])
		for j := range s.own {
			at, found := s.indexes[s.own[j].Key]
			if !found {
				at = len(s.tiers)
				s.indexes[s.own[j].Key] = at
				s.tiers = append(s.tiers, s.own[j])
			}
			s.tiers[at].Cost = max(s.tiers[at].Cost, s.own[j].Cost)
		}
	}
	group.setCosts(s.tiers[before:])
	return group
}

// bucketChecks sets tiers once appending no longer moves them.
func (s *scratch) bucketChecks() []BucketCheck {
	start := 0
	for k, end := range s.tierEnds {
		s.checks[k].Tiers = s.tiers[start:end:end]
		start = end
	}
	return s.checks
}

func (s *scratch) answer(
	tenant *snapshot.Tenant, decisions []Decision, check *BucketCheck, read func(*Decision, *BucketCheck),
) {
	if len(decisions) == 1 {
		read(&decisions[0], check)
		return
	}
	part := *check
	part.Mixed = true
	for i := range decisions {
		d := &decisions[i]
		if d.isDenied() || d.isUncharged {
			continue
		}
		s.own = bucketTiers(tenant, nil, d.Tiers, s.own[:0])
		for j := range s.own {
			s.own[j] = s.tiers[s.indexes[s.own[j].Key]]
		}
		if len(s.own) > 0 {
			part.Tiers = s.own
			read(d, &part)
		}
	}
}

func (s *scratch) release() {
	if cap(s.checks) > keptChecks {
		return
	}
	clear(s.checks)
	clear(s.tiers)
	clear(s.own)
	clear(s.indexes)
	s.checks, s.froms, s.tiers, s.tierEnds, s.own = s.checks[:0], s.froms[:0], s.tiers[:0], s.tierEnds[:0], s.own[:0]
	scratches.Put(s)
}

const keptChecks = 64

func bucketCheck(tenant *snapshot.Tenant, check *Check, tiers []Tier) BucketCheck {
	b := BucketCheck{ReadAt: tenant.ReadAt(), NoDelay: check.Proxied}
	b.setCosts(tiers)
	if b.Record = check.Record; b.Record {
		b.RecordID = check.RecordID
		return b
	}
	life, isOptional := time.Duration(0), !check.Reserve
	if check.Reserve {
		life = cmp.Or(check.ReserveFor, DefaultReserveFor)
	}
	isEnforced := false
	for i := range tiers {
		if limit := &tiers[i].Limit; limit.Kind == rules.KindConcurrency && tiers[i].Cost > 0 {
			life = max(life, time.Duration(limit.Interval)*time.Microsecond)
			isOptional = isOptional && tiers[i].Shadow
		}
		isEnforced = isEnforced || !tiers[i].Shadow
	}
	if life > 0 {
		b.Reserve = &Reservation{
			ID: newReservationID(), Life: life, Key: check.Key, Optional: isOptional || !isEnforced,
		}
		b.Holder = b.Reserve.ID.Holder()
		if tenant.Tenant.Settings.RecordDays > 0 {
			b.Reserve.User = check.UserID
			b.Reserve.Costs = append([]MeterCost{{Cost: check.Cost}}, check.Costs...)
		}
	}
	return b
}

func (c *BucketCheck) setCosts(tiers []Tier) {
	for i := range tiers {
		c.Cost = max(c.Cost, tiers[i].Cost)
		c.Mixed = c.Mixed || tiers[i].Cost != tiers[0].Cost
	}
}

func bucketTiers(tenant *snapshot.Tenant, check *Check, tiers []TierDecision, dst []Tier) []Tier {
	for i := range tiers {
		m := tiers[i].Match
		if !isLimit(m) {
			continue
		}
		if dst == nil {
			dst = make([]Tier, 0, len(tiers)-i)
		}
		var cost Tokens
		if check != nil {
			cost, _ = check.CostOf(m.Rule)
		}
		dst = append(dst, Tier{
			Key:        KeyOf(&tenant.Tenant, m),
			Limit:      m.Limit,
			Shadow:     m.Mode == rules.ModeShadow,
			NeverLease: m.Rule.NeverLeased,
			After:      m.Rule.ChargedAfter,
			Meter:      m.Rule.Meter,
			Cost:       cost,
		})
	}
	return dst
}
