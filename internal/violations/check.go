package violations

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Check is a decided check. The Recorder keeps no reference to it.
type Check struct {
	Tenant  rules.TenantID
	Request *rules.Request
	Plan    string // plan of the decision
	Cost    Tokens // of rules that count requests
	// HasCosts: the check costs something else than requests.
	HasCosts bool

	Allowed bool
	// Bypassed means that a bypass rule allowed the check.
	Bypassed bool
	// Degraded means a decision without the shared buckets.
	Degraded bool
	// Tiers are the results of the evaluated rules. Deciding is the index of the one that denied the check, else
	// meaningless.
	Tiers    []Tier
	Deciding int
	// Times is the number of equal checks; 0 is one.
	Times int64
	// Record means that each tier was charged its own amount.
	Record bool
	// ByMeter means that the check also counts by meter, because the tenant's rules count several.
	ByMeter bool
}

// costOf returns the check's cost for a tier's rule.
func (c *Check) costOf(t *Tier) Tokens {
	if t.Rule.Meter == "" {
		return c.Cost
	}
	return t.Cost
}

func (c *Check) times() int64 { return max(1, c.Times) }

// Tier is a rule's result.
type Tier struct {
	Rule *rules.Rule
	// Mode is the rule's own, or shadow while its tenant is in shadow.
	Mode    rules.Mode
	Subject string
	Cost    Tokens // of a rule that counts something else than requests
	// Allowed is the rule's own verdict.
	Allowed bool
	Reason  string // "" if allowed
	Limit   rules.Limit
	IsOwn   bool // see rules.Match
	// BucketRead means that Remaining is the bucket's level after the check.
	BucketRead bool
	Remaining  Tokens
	RetryAfter time.Duration
	// Charged is what the check took from the bucket; only for a Record and a rule that is charged after.
	Charged Tokens
}

// violation copies texts, because a check's may be parts of a large request body.
func (c *Check) violation(t *Tier, subject string, now time.Time) *Violation {
	v := &Violation{
		ID:          ID{At: now},
		Tenant:      c.Tenant,
		Rule:        t.Rule.ID,
		Subject:     subject,
		Reason:      t.Reason,
		Scope:       t.Rule.Scope(),
		Mode:        t.Mode,
		Pattern:     t.Rule.Pattern.String(),
		Version:     t.Rule.Version,
		Algorithm:   t.Rule.Algorithm,
		Meter:       t.Rule.Meter,
		UserID:      strings.Clone(c.Request.UserID),
		IP:          rules.PlainIP(c.Request.IP),
		Endpoint:    strings.Clone(c.Request.Endpoint),
		Method:      strings.Clone(c.Request.Method),
		Plan:        c.Plan,
		Cost:        c.costOf(t),
		Tokens:      t.Remaining,
		TokensKnown: t.BucketRead,
		RetryAfter:  t.RetryAfter,
		Count:       c.times(),
		LastAt:      now,
	}
	if t.Rule.Action == rules.ActionLimit {
		v.Rate, v.Burst, v.LimitText = t.Limit.Rate, t.Limit.Burst, t.Rule.Describe(t.Limit)
	}
	if t.IsOwn {
		v.OwnLimit, v.Algorithm = t.Limit, rules.FixedWindow
	}
	return v
}

func (v *Violation) sameAs(c *Check, t *Tier) bool {
	return v.UserID == c.Request.UserID && v.Endpoint == c.Request.Endpoint && v.Method == c.Request.Method &&
		v.IP == rules.PlainIP(c.Request.IP) && v.Plan == c.Plan && v.Cost == c.costOf(t) &&
		v.Mode == t.Mode && v.Reason == t.Reason && v.Version == t.Rule.Version &&
		(t.Rule.Action != rules.ActionLimit || v.Rate == t.Limit.Rate && v.Burst == t.Limit.Burst) &&
		(v.OwnLimit == rules.Limit{}) != t.IsOwn && (!t.IsOwn || v.OwnLimit == t.Limit)
}
