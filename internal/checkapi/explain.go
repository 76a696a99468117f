package checkapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// maxNearMisses caps the near misses of an explanation.
const maxNearMisses = 100

// explain handles POST /v1/explain.
//
// The answer has the decision of /v1/check, but nothing is taken and every matched rule has a tier, even behind a block or a
// bypass; the source of the plan (see planSource); the matched rules, in the order of the tiers; the rules that nearly
// matched, with the reason; the tenant's enforcement, which in shadow makes every rule's mode shadow; and the headers that
// the check would get.
func (s *surface) explain(c *fasthttp.RequestCtx, tenant *snapshot.Tenant) error {
	answer, err := Explain(c, s.Limiter, c.PostBody(), tenant, s.Now())
	if err != nil {
		return err
	}
	write(c, http.StatusOK, jsonType, answer)
	return nil
}

// Explain returns the explanation, in JSON, of the check in a body. The caller must be authorized. The admin API uses it
// too. The error is a *httpapi.Problem.
func Explain(ctx context.Context, limiter *enforce.Limiter, body []byte, tenant *snapshot.Tenant, now time.Time) ([]byte, error) {
	x := scratches.Get().(*scratch)
	defer x.release()
	if err := x.readCheck(body); err != nil {
		return nil, err
	}
	check := &x.checks[0]
	source := planSource(tenant, &check.Request)
	if err := choosePlans(tenant, x.checks, onePointer); err != nil {
		return nil, err
	}
	d := limiter.Explain(ctx, tenant, check)
	misses := tenant.Misses(&check.Request, check.EffectivePlan, maxNearMisses)
	x.headers.reset()
	x.headers.addRateLimit(asChecked(&d), now, jitter(&tenant.Tenant, &check.Request))
	return appendExplanation(nil, tenant, &d, source, misses, &x.headers), nil
}

// asChecked returns an explained decision as a check would get it: without the limits behind a block or a bypass.
func asChecked(d *enforce.Decision) *enforce.Decision {
	if !d.Bypassed && d.Reason != enforce.Blocked {
		return d
	}
	return &enforce.Decision{Allowed: d.Allowed, Bypassed: d.Bypassed, Reason: d.Reason, Deciding: -1}
}

// planSource says where a check's plan comes from: "check" if the check names it, "user" if it is assigned to the user,
// "tenant" if it is the default, "" if there is no plan.
func planSource(tenant *snapshot.Tenant, r *rules.Request) string {
	if r.Plan != "" {
		return "check"
	}
	if _, assigned := tenant.AssignedPlan(r.UserID); assigned {
		return "user"
	}
	if tenant.Tenant.DefaultPlan != "" {
		return "tenant"
	}
	return ""
}

func appendExplanation(
	b []byte, tenant *snapshot.Tenant, d *enforce.Decision, planSource string, misses []snapshot.Miss, headers *headerText,
) []byte {
	b = appendAnswer(append(b, `{"decision":`...), d)
	b = appendText(append(b, `,"plan_source":`...), planSource)
	b = appendText(append(b, `,"enforcement":`...), string(tenant.Tenant.Enforcement()))
	b = append(b, `,"rules":[`...)
	for i := range d.Tiers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMatch(b, d.Tiers[i].Match)
	}
	b = append(b, `],"near_misses":[`...)
	for i := range misses {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRule(append(b, '{'), misses[i].Rule, misses[i].Rule.Mode)
		b = appendText(append(b, `,"plan":`...), misses[i].Rule.Plan)
		b = append(appendText(append(b, `,"reason":`...), misses[i].Reason), '}')
	}
	b = append(b, `],"headers":[`...)
	start := 0
	for i, field := range headers.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"name":`...), field.name)
		b = append(appendText(append(b, `,"value":`...), string(headers.text[start:field.end])), '}')
		start = field.end
	}
	return append(b, `]}`...)
}

// appendMatch appends a matched rule with the check's limit; overridden marks the limit of an override.
func appendMatch(b []byte, m *rules.Match) []byte {
	b = appendRule(append(b, '{'), m.Rule, m.Mode)
	b = appendText(append(b, `,"plan":`...), m.Rule.Plan)
	b = appendText(append(b, `,"action":`...), string(m.Rule.Action))
	if unknown := m.Rule.Unknown; unknown != "" {
		b = appendText(append(b, `,"unknown":`...), unknown)
		b = appendText(append(b, `,"failure_mode":`...), string(m.FailureMode))
		return append(b, `,"rate_per_second":null,"burst_capacity":null,"overridden":false}`...)
	}
	if m.Rule.Action != rules.ActionLimit {
		return append(b, `,"failure_mode":null,"rate_per_second":null,"burst_capacity":null,"overridden":false}`...)
	}
	overridden := m.Limit.Rate != m.Rule.RatePerSecond || m.Limit.Burst != m.Rule.Burst
	b = appendText(append(b, `,"failure_mode":`...), string(m.FailureMode))
	b = strconv.AppendFloat(append(b, `,"rate_per_second":`...), m.Limit.Rate, 'f', -1, 64)
	b = strconv.AppendInt(append(b, `,"burst_capacity":`...), m.Limit.Burst, 10)
	return append(strconv.AppendBool(append(b, `,"overridden":`...), overridden), '}')
}
