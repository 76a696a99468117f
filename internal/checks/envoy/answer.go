package envoy

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

type unit = rls.RateLimitResponse_RateLimit_Unit

type answer struct {
	rls.RateLimitResponse
	statuses []descriptorStatus
}

type descriptorStatus struct {
	rls.RateLimitResponse_DescriptorStatus
	limit rls.RateLimitResponse_RateLimit
	reset durationpb.Duration
}

func newAnswer(descriptors int) *answer {
	a := &answer{statuses: make([]descriptorStatus, descriptors)}
	a.OverallCode = rls.RateLimitResponse_OK
	a.Statuses = make([]*rls.RateLimitResponse_DescriptorStatus, descriptors)
	for i := range a.statuses {
		s := &a.statuses[i]
		s.Code = rls.RateLimitResponse_OK
		a.Statuses[i] = &s.RateLimitResponse_DescriptorStatus
	}
	return a
}

// describe takes the tier that decided, like the top level of an answer in JSON, else the shadow tier with the fewest
// tokens.
func (s *descriptorStatus) describe(d *enforce.Decision, now time.Time) {
	if !d.Allowed {
		s.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	t := d.DecidingTier()
	if t == nil && d.Allowed {
		t = shadowTier(d)
	}
	switch {
	case t != nil && t.BucketRead:
		s.limitBy(t)
		if d.Allowed || d.Reason == enforce.CostExceedsLimit {
			s.LimitRemaining = uint32(max(0, t.Remaining.Whole()))
		}
	case d.Reason == enforce.Blocked:
		s.limitBy(limitOfNone(t, now))
	case d.Reason == enforce.StoreUnavailable:
		s.resetAfter(time.Second)
	}
}

func (s *descriptorStatus) limitBy(t *enforce.TierDecision) {
	s.limit.Name, s.limit.RequestsPerUnit, s.limit.Unit = t.Match.Rule.Name, uint32(t.Limit.Burst), unitOf(t)
	s.CurrentLimit = &s.limit
	s.resetAfter(untilReset(t))
}

// limitOfNone returns a block as a limit of 0 in a window.
func limitOfNone(block *enforce.TierDecision, now time.Time) *enforce.TierDecision {
	limit := enforce.Limit{Kind: rules.KindFixedWindow, Interval: block.Match.Limit.Interval}
	if !block.Match.IsOwn {
		limit.Interval = max(block.Match.Rule.RateUnit.Length(), time.Second).Microseconds()
	}
	return &enforce.TierDecision{Match: block.Match, Limit: limit, Stamp: now.UnixMicro()}
}

func shadowTier(d *enforce.Decision) (fewest *enforce.TierDecision) {
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if t.BucketRead && t.Limit.Kind != rules.KindConcurrency && (fewest == nil || t.IsScarcer(fewest)) {
			fewest = t
		}
	}
	return fewest
}

func (s *descriptorStatus) resetAfter(wait time.Duration) {
	s.reset.Seconds = int64(wait / time.Second) // it is whole seconds
	s.DurationUntilReset = &s.reset
}

func untilReset(t *enforce.TierDecision) time.Duration {
	wait := t.ResetAfter
	switch {
	case t.RetryAfter > 0:
		wait = t.RetryAfter
	case t.Limit.Kind == rules.KindFixedWindow:
		_, end := t.Limit.WindowAt(t.Stamp)
		wait = time.Duration(end-t.Stamp) * time.Microsecond
	}
	return (wait + time.Second - 1).Truncate(time.Second)
}

const day = 24 * time.Hour

func unitOf(t *enforce.TierDecision) unit {
	window := t.Window()
	switch window {
	case time.Second:
		return rls.RateLimitResponse_RateLimit_SECOND
	case time.Minute:
		return rls.RateLimitResponse_RateLimit_MINUTE
	case time.Hour:
		return rls.RateLimitResponse_RateLimit_HOUR
	case day:
		return rls.RateLimitResponse_RateLimit_DAY
	case 7 * day:
		return rls.RateLimitResponse_RateLimit_WEEK
	case 365 * day:
		return rls.RateLimitResponse_RateLimit_YEAR
	}
	if t.Limit.Kind == rules.KindFixedWindow && window >= 28*day && window <= 31*day+time.Hour {
		return rls.RateLimitResponse_RateLimit_MONTH
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN
}

// The denied descriptor with the longest wait decides, else the one with the fewest tokens left. Envoy itself derives
// X-RateLimit-* from the statuses.
func (q *question) headers(tenant *snapshot.Tenant, now time.Time) []*core.HeaderValue {
	decisions := q.asked.decisions[:len(q.asked.checks)]
	decides := -1
	for i := range decisions {
		if decisions[i].DecidingTier() != nil && (decides < 0 || before(&decisions[i], &decisions[decides])) {
			decides = i
		}
	}
	if decides < 0 {
		return nil
	}
	q.fields.Reset()
	q.fields.AddRateLimit(&decisions[decides], now, checkjson.Jitter(&tenant.Tenant, &q.asked.checks[decides].Request))
	const most = 4 // RateLimit-Policy, RateLimit, Retry-After and X-Sluice-Reason
	values, headers := make([]core.HeaderValue, 0, most), make([]*core.HeaderValue, 0, most)
	for name, value := range q.fields.Strings() {
		switch name {
		case "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset":
		default:
			if len(values) == cap(values) {
				values = make([]core.HeaderValue, 0, most)
			}
			values = values[:len(values)+1]
			v := &values[len(values)-1]
			v.Key, v.Value = name, value
			headers = append(headers, v)
		}
	}
	return headers
}

func before(a, b *enforce.Decision) bool {
	if a.Allowed != b.Allowed {
		return !a.Allowed
	}
	one, other := a.DecidingTier(), b.DecidingTier()
	if a.Allowed {
		return one.IsScarcer(other)
	}
	if one.BucketRead != other.BucketRead {
		return !one.BucketRead // a block, or a rule that fails closed, has no end
	}
	return one.RetryAfter > other.RetryAfter
}
