package violations

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Check is a decided check. The Recorder keeps no reference to it.
type Check struct {
	Tenant   rules.TenantID
	Request  *rules.Request
	Plan     string // plan of the decision
	Cost     Tokens // of rules that count requests
	HasCosts bool   // something else than requests

	Allowed  bool
	Bypassed bool // by a bypass rule
	Degraded bool // without the shared buckets
	// Tiers are the evaluated rules, Deciding the index of the one that denied; meaningless for an allowed check.
	Tiers    []Tier
	Deciding int
	Times    int64 // of equal checks; 0 is one
	Record   bool  // each tier was charged its own amount
	ByMeter  bool  // counts by meter as well, because the tenant's rules count several
}

func (c *Check) costOf(t *Tier) Tokens {
	if t.Rule.Meter == "" {
		return c.Cost
	}
	return t.Cost
}

func (c *Check) times() int64 { return max(1, c.Times) }

// Tier is a rule's result.
type Tier struct {
	Rule       *rules.Rule
	Mode       rules.Mode // shadow while the tenant is in shadow
	Subject    string
	Cost       Tokens // of a rule that counts something else than requests
	Allowed    bool   // the rule's own verdict
	Reason     string // "" if allowed
	Limit      rules.Limit
	IsOwn      bool // see rules.Match
	BucketRead bool // Remaining is the bucket's level after the check
	Remaining  Tokens
	RetryAfter time.Duration
	Charged    Tokens // for a Record and a rule that is charged after
}

// violation copies texts, which may be parts of a large request body.
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
