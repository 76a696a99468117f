package enforce

import (
	"cmp"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// deciding is one call of Limiter.decide, in reused memory.
type deciding struct {
	tenant    *snapshot.Tenant
	checks    []Check
	decisions []Decision
	size      int // of each group of consecutive checks, which is all or nothing

	sent     []BucketCheck // for groups with limits
	froms    []int         // sent[k] is for the group that begins at froms[k]
	tiers    []Tier
	tierEnds []int       // of each sent check's tiers in tiers
	indexes  map[Key]int // in tiers, for a group of several checks
	own      []Tier      // of one check of a group
}

var decidings = sync.Pool{New: func() any { return &deciding{indexes: map[Key]int{}} }}

func startDeciding(tenant *snapshot.Tenant, checks []Check, decisions []Decision, size int) *deciding {
	d := decidings.Get().(*deciding)
	d.tenant, d.checks, d.decisions, d.size = tenant, checks, decisions, size
	return d
}

// match finds the rules that take part in each check, and decides by those that need no bucket.
func (d *deciding) match(now time.Time) {
	for i := range d.checks {
		check, decision := &d.checks[i], &d.decisions[i]
		decision.matches = match(d.tenant, check, now, decision.matches[:0])
		decision.begin(check)
		decision.failUnknown(check)
	}
}

func (d *deciding) group(from int) ([]Check, []Decision) {
	return d.checks[from : from+d.size], d.decisions[from : from+d.size]
}

// collect makes a bucket check for each group with limits.
func (d *deciding) collect() error {
	for from := 0; from < len(d.checks); from += d.size {
		d.add(from)
		if d.size > 1 && len(d.tiers) > MaxTogether {
			return ErrTooManyBuckets
		}
	}
	return nil
}

func (d *deciding) add(from int) {
	before := len(d.tiers)
	checks, decisions := d.group(from)
	var sent BucketCheck
	if d.size == 1 {
		d.tiers = bucketTiers(d.tenant, &checks[0], decisions[0].Tiers, d.tiers)
		sent = bucketCheck(d.tenant, &checks[0], d.tiers[before:])
		if len(d.tiers) == before && decisions[0].isUndecided() && (sent.Reserve != nil || sent.HasRecordID()) {
			d.tiers = append(d.tiers, untouched(d.tenant.Tenant.ID))
		}
	} else {
		sent = d.merge(checks, decisions)
	}
	if len(d.tiers) > before {
		d.sent = append(d.sent, sent)
		d.froms = append(d.froms, from)
		d.tierEnds = append(d.tierEnds, len(d.tiers))
	}
}

// conclude chooses the tier that each answer names.
func (d *deciding) conclude() {
	for i := range d.checks {
		d.decisions[i].conclude()
	}
}

func (d *deciding) observe(observer Observer) {
	for from := 0; from < len(d.checks); from += d.size {
		checks, decisions := d.group(from)
		allowed := allAllowed(decisions)
		for i := range decisions {
			decision := &decisions[i]
			isUncharged := decision.Record && (!decision.Allowed || decision.Repeated)
			if !isUncharged && (allowed || !decision.Allowed) {
				observer.Decided(d.tenant, &checks[i], decision)
			}
		}
	}
}

func allAllowed(decisions []Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// untouched is a bucket that nobody takes from: stores keep the reservation or record id of a check without buckets
// beside it.
func untouched(tenant rules.TenantID) Tier {
	slots := Limit{Kind: rules.KindConcurrency, Burst: 1, Interval: MaxReserveFor.Microseconds()}
	return Tier{Key: Key{Tenant: tenant}, Limit: slots, Shadow: true, NeverLease: true}
}

// merge adds the tiers of undenied checks, each bucket once at its largest cost; after a denial the group only looks.
func (d *deciding) merge(checks []Check, decisions []Decision) (sent BucketCheck) {
	sent.ReadAt = d.tenant.ReadAt()
	before := len(d.tiers)
	for i := range decisions {
		sent.NoDelay, sent.Record = sent.NoDelay || checks[i].Proxied, sent.Record || checks[i].Record
		if !decisions[i].isUndecided() {
			sent.Look = true
			continue
		}
		d.own = bucketTiers(d.tenant, &checks[i], decisions[i].Tiers, d.own[:0])
		for j := range d.own {
			at, found := d.indexes[d.own[j].Key]
			if !found {
				at = len(d.tiers)
				d.indexes[d.own[j].Key] = at
				d.tiers = append(d.tiers, d.own[j])
			}
			d.tiers[at].Cost = max(d.tiers[at].Cost, d.own[j].Cost)
		}
	}
	sent.setCosts(d.tiers[before:])
	return sent
}

// bucketChecks sets tiers once appending no longer moves them.
func (d *deciding) bucketChecks() []BucketCheck {
	start := 0
	for k, end := range d.tierEnds {
		d.sent[k].Tiers = d.tiers[start:end:end]
		start = end
	}
	return d.sent
}

func (d *deciding) read(decisions []Decision, answer *BucketCheck, read func(*Decision, *BucketCheck)) {
	if len(decisions) == 1 {
		read(&decisions[0], answer)
		return
	}
	part := *answer
	part.Mixed = true
	for i := range decisions {
		if !decisions[i].isUndecided() {
			continue
		}
		d.own = bucketTiers(d.tenant, nil, decisions[i].Tiers, d.own[:0])
		for j := range d.own {
			d.own[j] = d.tiers[d.indexes[d.own[j].Key]]
		}
		if len(d.own) > 0 {
			part.Tiers = d.own
			read(&decisions[i], &part)
		}
	}
}

// release drops memory that a large batch grew.
func (d *deciding) release() {
	if cap(d.sent) > keptChecks {
		return
	}
	clear(d.sent)
	clear(d.tiers)
	clear(d.own)
	clear(d.indexes)
	*d = deciding{
		sent: d.sent[:0], froms: d.froms[:0], tiers: d.tiers[:0], tierEnds: d.tierEnds[:0], own: d.own[:0],
		indexes: d.indexes,
	}
	decidings.Put(d)
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
