package checkjson

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const maxNearMisses = 100

// Explain explains the check in a body; the error is a *httpapi.Problem.
func Explain(ctx context.Context, limiter *enforce.Limiter, body []byte, tenant *snapshot.Tenant,
	now time.Time,
) ([]byte, error) {
	var r httpapi.Reader
	r.Reset(bytes.NewBuffer(body))
	check := DecodeCheck(&r)
	if check.Record {
		r.RefuseAt("/record", "cannot be explained; leave it out to see which rules match")
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return ExplainCheck(ctx, limiter, check, tenant, now)
}

// ExplainCheck is Explain for a decoded check.
func ExplainCheck(
	ctx context.Context, limiter *enforce.Limiter, check enforce.Check, tenant *snapshot.Tenant, now time.Time,
) ([]byte, error) {
	source := planSource(tenant, &check.Request)
	checks := []enforce.Check{check}
	if err := ChoosePlans(tenant, checks, OnePlan); err != nil {
		return nil, err
	}
	check = checks[0]
	d := limiter.Explain(ctx, tenant, &check)
	misses := tenant.Misses(&check.Request, check.EffectivePlan, now, maxNearMisses)
	unnamed, unmatched := d.Unnamed(&check)
	for _, rule := range unnamed {
		misses = append([]snapshot.Miss{{
			Rule: rule, Reason: "counts " + rule.Meter.Word() + ", the check has no cost of it",
		}}, misses...)
	}
	if check.Proxied {
		for rule, difference := range d.Differences() {
			if difference == enforce.NotApplied {
				misses = append([]snapshot.Miss{{Rule: rule, Reason: notAppliedAtGateways}}, misses...)
			}
		}
	}
	misses = misses[:min(len(misses), maxNearMisses)]
	var headers Headers
	jitter := Jitter(&tenant.Tenant, &check.Request)
	headers.AddRateLimit(asChecked(&d), now, jitter)
	b := AppendDecision([]byte(`{"decision":`), &d, jitter)
	return appendExplanation(b, tenant, now, &d, source, misses, unmatched, &headers), nil
}

const notAppliedAtGateways = "it matches, but counts requests in flight, and a gateway does not say when a request ends"

// asChecked leaves out the limits behind a block or a bypass.
func asChecked(d *enforce.Decision) *enforce.Decision {
	if !d.Bypassed && d.Reason != enforce.Blocked {
		return d
	}
	return &enforce.Decision{Allowed: d.Allowed, Bypassed: d.Bypassed, Reason: d.Reason, Deciding: -1}
}

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
	b []byte, tenant *snapshot.Tenant, now time.Time, d *enforce.Decision, planSource string, misses []snapshot.Miss,
	unmatched []rules.Meter, headers *Headers,
) []byte {
	b = httpapi.AppendText(append(b, `,"plan_source":`...), planSource)
	b = httpapi.AppendText(append(b, `,"enforcement":`...), string(tenant.Tenant.Enforcement()))
	b = appendList(append(b, `,"rules":`...), d.Tiers, func(b []byte, t *enforce.TierDecision) []byte {
		overridden, share := tenant.Stands(t.Match, now)
		if b = appendMatch(b, t.Match, overridden, share); t.BucketRead && t.Out > 0 {
			b = appendLent(b[:len(b)-1], t)
		}
		return b
	})
	b = appendList(append(b, `,"near_misses":`...), misses, func(b []byte, miss *snapshot.Miss) []byte {
		b = appendRule(append(b, '{'), miss.Rule, miss.Rule.Mode)
		b = httpapi.AppendText(append(b, `,"plan":`...), miss.Rule.Plan)
		return append(httpapi.AppendText(append(b, `,"reason":`...), miss.Reason), '}')
	})
	b = appendList(append(b, `,"unmatched_meters":`...), unmatched, func(b []byte, meter *rules.Meter) []byte {
		return httpapi.AppendString(b, string(*meter))
	})
	b = append(b, `,"headers":[`...)
	for name, value := range headers.All() {
		if b[len(b)-1] == '}' {
			b = append(b, ',')
		}
		b = httpapi.AppendText(append(b, `{"name":`...), name)
		b = append(httpapi.AppendText(append(b, `,"value":`...), string(value)), '}')
	}
	return append(b, `]}`...)
}

func appendLent(b []byte, t *enforce.TierDecision) []byte {
	b = appendTokens(append(b, `,"lent":{"tokens":`...), t.Out)
	b = strconv.AppendInt(append(b, `,"processes":`...), t.Holders, 10)
	return append(b, `}}`...)
}

// share is the present part of the configured rate, in percent.
func appendMatch(b []byte, m *rules.Match, overridden bool, share int) []byte {
	b = appendRule(append(b, '{'), m.Rule, m.Mode)
	b = httpapi.AppendText(append(b, `,"plan":`...), m.Rule.Plan)
	b = httpapi.AppendText(append(b, `,"action":`...), string(m.Rule.Action))
	algorithm := m.Rule.Algorithm
	if m.IsOwn {
		algorithm = rules.FixedWindow
	}
	b = httpapi.AppendText(append(b, `,"algorithm":`...), string(algorithm))
	unknown, failureMode := m.Rule.Unknown, m.FailureMode
	if unknown != "" {
		b = httpapi.AppendText(append(b, `,"unknown":`...), unknown)
	} else if m.Rule.Action != rules.ActionLimit {
		failureMode = ""
	}
	b = httpapi.AppendText(append(b, `,"failure_mode":`...), string(failureMode))
	if unknown != "" || m.Rule.Action != rules.ActionLimit {
		return append(b,
			`,"rate_per_second":null,"burst_capacity":null,"limit_text":null,"overridden":false}`...)
	}
	b = strconv.AppendFloat(append(b, `,"rate_per_second":`...), m.Limit.Rate, 'f', -1, 64)
	b = strconv.AppendInt(append(b, `,"burst_capacity":`...), m.Limit.Burst, 10)
	b = httpapi.AppendText(append(b, `,"limit_text":`...), m.Rule.Describe(m.Limit))
	b = strconv.AppendBool(append(b, `,"overridden":`...), overridden)
	if difference := enforce.AtGatewayOf(m.Limit.Kind); difference != "" {
		b = httpapi.AppendText(append(b, `,"at_gateway":`...), string(difference))
	}
	if share < 100 {
		b = strconv.AppendInt(append(b, `,"share_percent":`...), int64(share), 10)
	}
	return append(b, '}')
}
