package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Payer says whose token bucket a request takes from.
type Payer string

// Payers. A member's request takes from the buckets of tenant and account, if both have enough.
const (
	PayerTenant   Payer = "tenant"
	PayerAccount  Payer = "account"  // a person or an API key
	PayerPlatform Payer = "platform" // a platform admin or service key, who acts in every tenant
	PayerNetwork  Payer = "network"  // callers without a valid credential
)

// Payers are in the order of their rules.
var Payers = []Payer{PayerTenant, PayerAccount, PayerPlatform, PayerNetwork} //nolint:gochecknoglobals // a constant

// payerLimits let 20 people of a tenant watch live charts all day, at 4 tokens a second, or list 50,000 rules, for 100
// tokens. A test compares docs/operations.md.
var payerLimits = map[Payer]struct{ perSecond, burst int64 }{ //nolint:gochecknoglobals // a constant
	PayerTenant:   {perSecond: 80, burst: 5_000},
	PayerAccount:  {perSecond: 40, burst: 2_000},
	PayerPlatform: {perSecond: 200, burst: 10_000},
	PayerNetwork:  {perSecond: 60, burst: 2_000},
}

var costs = map[class]int64{light: 1, heavy: 5, bulk: 200} //nolint:gochecknoglobals // a constant

// RateLimiter limits the requests of each tenant, account and network, as an enforce.Limiter decides checks. Safe for
// concurrent use.
type RateLimiter struct {
	limiter *enforce.Limiter
	rules   *snapshot.Tenant
	denied  map[Payer]*atomic.Int64
	logged  map[Payer]*atomic.Int64 // when a denial was logged last, in Unix seconds
}

// NewRateLimiter returns a RateLimiter over buckets of its own, which must always answer. In this process's memory,
// limits hold per process.
func NewRateLimiter(buckets enforce.ReservingBuckets) *RateLimiter {
	const own rules.TenantID = 1 // in a store of its own
	l := &RateLimiter{denied: map[Payer]*atomic.Int64{}, logged: map[Payer]*atomic.Int64{}}
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: own, Settings: rules.DefaultSettings()}}}
	for i, payer := range Payers {
		l.denied[payer], l.logged[payer] = new(atomic.Int64), new(atomic.Int64)
		limit := payerLimits[payer]
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: rules.RuleID(i + 1), TenantID: own, Name: string(payer), Pattern: bucketOf(payer), Active: true,
			Mode: rules.ModeEnforce, Action: rules.ActionLimit, Algorithm: rules.TokenBucket, RateUnit: rules.PerSecond,
			RatePerSecond: float64(limit.perSecond), Burst: limit.burst,
		})
	}
	l.rules = snapshot.New(rows).Tenant(own)
	l.limiter = enforce.NewLimiter(buckets, buckets, unobserved{}, nil)
	return l
}

func bucketOf(payer Payer) rules.Pattern {
	name := "attr." + string(payer)
	pattern, err := rules.ParsePattern(name + ":{" + name + "}")
	if err != nil {
		panic(err) // it is a constant
	}
	return pattern
}

type unobserved struct{}

func (unobserved) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (unobserved) StoreAnswered(time.Duration, error)                          {}

// Take takes tokens from the buckets of a payer's attributes, from all or none.
func (l *RateLimiter) Take(ctx context.Context, tokens int64, from ...rules.Attribute) *enforce.Decision {
	checks := [1]enforce.Check{checkOf(tokens, from)}
	var decisions [1]enforce.Decision
	l.limiter.Decide(ctx, l.rules, checks[:], decisions[:])
	return &decisions[0]
}

func (l *RateLimiter) look(ctx context.Context, tokens int64, from ...rules.Attribute) *enforce.Decision {
	check := checkOf(tokens, from)
	decision := l.limiter.Explain(ctx, l.rules, &check)
	return &decision
}

func checkOf(tokens int64, from []rules.Attribute) enforce.Check {
	return enforce.Check{Request: rules.Request{Attributes: from}, Cost: enforce.Tokens(tokens) * enforce.Token}
}

// Denied counts the requests that a payer's bucket denied.
func (l *RateLimiter) Denied(payer Payer) int64 { return l.denied[payer].Load() }

func (s *surface) isLimited(q *apiRequest) bool {
	return s.RateLimiter != nil && strings.HasPrefix(q.route.path, "/api/")
}

func (s *surface) charge(q *apiRequest) error {
	if !s.isLimited(q) {
		return nil
	}
	decision := s.RateLimiter.Take(q.r.Context(), costs[q.route.class], s.payersOf(q)...)
	if decision.Allowed {
		showRateLimit(q.w.Header(), decision)
		return nil
	}
	return s.deny(q, decision)
}

func (s *surface) deny(q *apiRequest, decision *enforce.Decision) error {
	showRateLimit(q.w.Header(), decision)
	tier := decision.DecidingTier()
	if tier == nil { // these buckets are in memory, so only a fault of ours denies without a limit
		return httpapi.Unavailable.Problem("The rate limits cannot be read; nothing was done. Try again in a second.")
	}
	payer := Payer(tier.Match.Rule.Name)
	s.RateLimiter.denied[payer].Add(1)
	if now, last := s.Now().Unix(), s.RateLimiter.logged[payer].Load(); now-last >= 60 &&
		s.RateLimiter.logged[payer].CompareAndSwap(last, now) { // a loop must not fill the log
		s.Requests.Log.InfoContext(q.r.Context(), "a caller of the admin API exceeds its rate limit", "limit", payer,
			"tenant", httpapi.PathParam(q.r, "tenant"), "caller", q.caller().Account,
			"network", clientIP(q.r, s.TrustedProxies).String(), "wait", tier.RetryAfter, "request_id", q.requestID)
	}
	denial := httpapi.LimitExceeded.Problem(fmt.Sprintf("%s; nothing was done. Wait %d seconds.",
		exceeded[payer], wholeSeconds(tier.RetryAfter)))
	denial.Violated = []string{tier.Match.Rule.Name}
	return denial
}

var exceeded = map[Payer]string{ //nolint:gochecknoglobals // a constant
	PayerTenant:   "The members and API keys of this tenant sent too many requests",
	PayerAccount:  "You sent too many requests",
	PayerPlatform: "You sent too many requests",
	PayerNetwork:  "Your network sent too many requests without a valid session or API key",
}

// payersOf returns the attributes of a request's payers. A tenant pays only for its own members and keys.
func (s *surface) payersOf(q *apiRequest) []rules.Attribute {
	of := func(payer Payer, value string) rules.Attribute {
		return rules.Attribute{Name: string(payer), Value: value}
	}
	switch {
	case q.actor.ID == "":
		return []rules.Attribute{of(PayerNetwork, networkOf(q.r, s.TrustedProxies))}
	case q.isPlatform():
		return []rules.Attribute{of(PayerPlatform, q.caller().Account)}
	case q.role == "":
		return []rules.Attribute{of(PayerAccount, q.caller().Account)}
	}
	return []rules.Attribute{
		of(PayerTenant, strconv.FormatInt(int64(q.tenant.ID), 10)), of(PayerAccount, q.caller().Account),
	}
}

// networkOf returns the /24 of IPv4 or /48 of IPv6 that a request comes from.
func networkOf(r *http.Request, trusted []netip.Prefix) string {
	return rules.SiteNetwork(clientIP(r, trusted)).String()
}

func showRateLimit(h http.Header, decision *enforce.Decision) {
	var fields checkjson.Headers
	fields.AddServiceLimit(decision)
	for name, value := range fields.All() {
		h.Set(name, string(value))
	}
}
