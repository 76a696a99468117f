package violations

import (
	"net/netip"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Check is a decided check, as the Recorder is told of it. The Recorder keeps nothing of it.
type Check struct {
	Tenant  rules.TenantID
	Request *rules.Request
	Plan    string // the plan that the check was judged on
	Cost    Tokens

	Allowed bool
	// Bypassed says that a bypass rule let it pass.
	Bypassed bool
	// Degraded says that it was decided without the shared buckets.
	Degraded bool
	// Tiers are the parts of the rules that matched and were asked; Deciding is the index of the one
	// that denied the check, or means nothing.
	Tiers    []Tier
	Deciding int
}

// Tier is one rule's part of a decided check.
type Tier struct {
	Rule *rules.Rule
	// Mode is in force for the check: the rule's own, unless its tenant is in shadow.
	Mode    rules.Mode
	Subject string
	// Allowed is the rule's own verdict.
	Allowed bool
	Reason  string // "" when allowed
	Limit   rules.Limit
	// Known says that the bucket was read, and held Remaining after the check.
	BucketRead bool
	Remaining  Tokens
	RetryAfter time.Duration
}

// violation makes a row of the check's tier, for a subject. The texts are copies, because those of a check may be
// parts of a much larger request body.
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
		UserID:      strings.Clone(c.Request.UserID),
		IP:          plainIP(c.Request.IP),
		Endpoint:    strings.Clone(c.Request.Endpoint),
		Method:      strings.Clone(c.Request.Method),
		Plan:        c.Plan,
		Cost:        c.Cost,
		Tokens:      t.Remaining,
		TokensKnown: t.BucketRead,
		RetryAfter:  t.RetryAfter,
		Count:       1,
		LastAt:      now,
	}
	if t.Rule.Action == rules.ActionLimit {
		v.Rate, v.Burst = t.Limit.Rate, t.Limit.Burst
	}
	return v
}

// sameAs says whether the row can stand for the check's tier as well.
func (v *Violation) sameAs(c *Check, t *Tier) bool {
	return v.UserID == c.Request.UserID && v.Endpoint == c.Request.Endpoint && v.Method == c.Request.Method &&
		v.IP == plainIP(c.Request.IP) && v.Plan == c.Plan && v.Cost == c.Cost &&
		v.Mode == t.Mode && v.Reason == t.Reason && v.Version == t.Rule.Version &&
		(t.Rule.Action != rules.ActionLimit || v.Rate == t.Limit.Rate && v.Burst == t.Limit.Burst)
}

// plainIP brings an address into the form that rules are compared with.
func plainIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
