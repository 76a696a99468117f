package violations

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// counters count decisions. A check uses any of several, because one for each tenant would be contended.
type counters struct {
	mu      sync.Mutex
	tenants map[rules.TenantID]*tenantCounts
	minutes int // in all series
	most    int
}

type tenantCounts struct {
	checks series
	rules  map[rules.RuleID]*series
}

type ruleKey struct {
	tenant rules.TenantID
	rule   rules.RuleID
}

type series struct {
	latest  minuteVerdicts
	earlier []minuteVerdicts
}

type minuteVerdicts struct {
	minute int64 // since the Unix epoch
	Verdicts
}

const verdictsBytes = 200

func newCounters(maxBytes int) *counters {
	return &counters{tenants: map[rules.TenantID]*tenantCounts{}, most: maxBytes / verdictsBytes}
}

// add counts a shadow tier only for allowed checks, like its violations.
func (c *counters) add(minute int64, check *Check) {
	whole := check.verdicts(check.Allowed)
	if check.Allowed && !check.Bypassed {
		whole.take(check.Cost, check.times())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	counts, ok := c.tenants[check.Tenant]
	if !ok {
		counts = &tenantCounts{checks: c.begin(minute), rules: map[rules.RuleID]*series{}}
		c.tenants[check.Tenant] = counts
	}
	c.at(&counts.checks, minute).add(whole)
	for i := range check.Tiers {
		t := &check.Tiers[i]
		if !check.Allowed && t.Mode == rules.ModeShadow {
			continue
		}
		verdicts := check.verdicts(t.Allowed)
		if check.Allowed && t.Allowed && t.BucketRead {
			verdicts.take(check.taken(t), check.times())
			if t.isNearLimit() {
				verdicts.NearLimit = check.times()
			}
		}
		c.at(c.series(counts, t.Rule.ID, minute), minute).add(verdicts)
		if t.Mode == rules.ModeShadow && !t.Allowed && !check.Bypassed {
			c.at(c.series(counts, ShadowRules, minute), minute).Denied += check.times()
		}
	}
	if check.ByMeter {
		c.addMeters(counts, minute, check)
	}
}

// addMeters counts the check once for each meter, as denied if an enforced rule of the meter denies.
func (c *counters) addMeters(counts *tenantCounts, minute int64, check *Check) {
	for i := range check.Tiers {
		meter := check.Tiers[i].Rule.Meter
		if slices.ContainsFunc(check.Tiers[:i], func(t Tier) bool { return t.Rule.Meter == meter }) {
			continue
		}
		isDenied, cost := false, Tokens(0)
		for j := i; j < len(check.Tiers); j++ {
			t := &check.Tiers[j]
			if t.Rule.Meter != meter {
				continue
			}
			isDenied = isDenied || !t.Allowed && t.Mode != rules.ModeShadow
			if check.Allowed && t.Allowed && t.BucketRead {
				cost = max(cost, check.taken(t))
			}
		}
		verdicts := check.verdicts(!isDenied)
		verdicts.take(cost, check.times())
		c.at(c.series(counts, RulesOf(meter), minute), minute).add(verdicts)
	}
}

func (c *Check) taken(t *Tier) Tokens {
	if c.Record || t.Rule.ChargedAfter {
		return t.Charged
	}
	return c.costOf(t)
}

func (c *counters) series(counts *tenantCounts, rule rules.RuleID, minute int64) *series {
	s, ok := counts.rules[rule]
	if !ok {
		s = new(c.begin(minute))
		counts.rules[rule] = s
	}
	return s
}

func (c *Check) verdicts(allowed bool) (v Verdicts) {
	switch {
	case c.Bypassed:
		v.Bypassed = c.times()
	case allowed:
		v.Allowed = c.times()
	default:
		v.Denied = c.times()
	}
	if c.Degraded {
		v.Degraded = c.times()
	}
	return v
}

// nearLimitShare is the inverse of the share that is left of a limit when it counts as nearly used up.
const nearLimitShare = 5

func (t *Tier) isNearLimit() bool {
	return t.Remaining*nearLimitShare < Tokens(t.Limit.Burst)*Token // at most 5e15
}

func (v *Verdicts) take(cost Tokens, times int64) {
	parts := cost % Token * Tokens(times)
	v.Taken, v.TakenParts = int64(cost/Token)*times+int64(parts/Token), parts%Token
}

func (c *counters) begin(minute int64) series {
	c.minutes++
	return series{latest: minuteVerdicts{minute: minute}}
}

// at returns the counts of a minute, or of the last one if there is no memory for another.
func (c *counters) at(s *series, minute int64) *Verdicts {
	if s.latest.minute < minute && c.minutes < c.most {
		s.earlier = append(s.earlier, s.latest)
		s.latest = minuteVerdicts{minute: minute}
		c.minutes++
	}
	return &s.latest.Verdicts
}

func (c *counters) take() map[rules.TenantID]*tenantCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.tenants
	c.tenants, c.minutes = make(map[rules.TenantID]*tenantCounts, len(taken)), 0
	return taken
}

type sums map[sumKey]Verdicts

type sumKey struct {
	ruleKey
	minute int64 // since the Unix epoch
}

func (s sums) add(tenants map[rules.TenantID]*tenantCounts) {
	for tenant, counts := range tenants {
		s.addSeries(ruleKey{tenant, 0}, &counts.checks)
		for rule, series := range counts.rules {
			s.addSeries(ruleKey{tenant, rule}, series)
		}
	}
}

func (s sums) addSeries(key ruleKey, counted *series) {
	for _, minute := range append(counted.earlier, counted.latest) {
		at := sumKey{key, minute.minute}
		verdicts := s[at]
		verdicts.add(minute.Verdicts)
		s[at] = verdicts
	}
}

// decisions sorts by the store's keys, so that processes that write the same rows do not deadlock.
func (s sums) decisions() []DecisionCount {
	counts := make([]DecisionCount, 0, len(s))
	for at, verdicts := range s {
		counts = append(counts, DecisionCount{
			Tenant: at.tenant, Rule: at.rule, Minute: minuteTime(at.minute), Verdicts: verdicts,
		})
	}
	slices.SortFunc(counts, func(a, b DecisionCount) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Rule, b.Rule), a.Minute.Compare(b.Minute))
	})
	return counts
}

func minuteTime(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }
