package enforce

import (
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
)

// question is the memory of one call of Decide: what the shared buckets are asked.
type question struct {
	asks  []Ask
	asked []int // asks[k] belongs to the check at asked[k]
	tiers []Tier
	ends  []int // of each ask's tiers
}

var questions = sync.Pool{New: func() any { return new(question) }}

// add adds the limits among a check's tiers, if there are any.
func (q *question) add(tenant *rules.TenantRules, check int, cost Tokens, tiers []TierDecision) {
	before := len(q.tiers)
	q.tiers = bucketTiers(tenant, tiers, q.tiers)
	if len(q.tiers) > before {
		q.asks = append(q.asks, Ask{Cost: cost, ReadAt: tenant.ReadAt()})
		q.asked = append(q.asked, check)
		q.ends = append(q.ends, len(q.tiers))
	}
}

// complete gives the asks their tiers, now that these stay where they are.
func (q *question) complete() []Ask {
	start := 0
	for k, end := range q.ends {
		q.asks[k].Tiers = q.tiers[start:end:end]
		start = end
	}
	return q.asks
}

// release gives the memory back, except that of large batches.
func (q *question) release() {
	if cap(q.asks) > keptAsks {
		return
	}
	clear(q.asks)
	clear(q.tiers)
	q.asks, q.asked, q.tiers, q.ends = q.asks[:0], q.asked[:0], q.tiers[:0], q.ends[:0]
	questions.Put(q)
}

// keptAsks is how large a question may be for its memory to be kept.
const keptAsks = 64

// bucketTiers appends the buckets of the limits among the tiers.
func bucketTiers(tenant *rules.TenantRules, tiers []TierDecision, to []Tier) []Tier {
	for i := range tiers {
		m := tiers[i].Match
		if !isLimit(m) {
			continue
		}
		if to == nil {
			to = make([]Tier, 0, len(tiers)-i)
		}
		to = append(to, Tier{
			Key:    Key{Tenant: tenant.Tenant.ID, Rule: m.Rule.ID, Subject: m.Subject},
			Limit:  m.Limit,
			Shadow: m.Mode == rules.ModeShadow,
		})
	}
	return to
}
