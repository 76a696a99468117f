// Package checkjson reads checks from JSON, and writes decisions and explanations as JSON and headers.
//
// Reading and writing checks use no reflection.
package checkjson

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// reservationRetryAfter is the wait while too many reservations are open.
const reservationRetryAfter = time.Second

const storeRetryAfter = time.Second

// Status returns the HTTP status of a decision.
func Status(d *enforce.Decision) int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.Reason == enforce.StoreUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// AppendDecision appends a decision, with the caller's Jitter, as a JSON object.
func AppendDecision(b []byte, d *enforce.Decision, jitter int64) []byte {
	return append(appendMembers(append(b, '{'), d, jitter), '}')
}

// AppendBatch appends the results of a batch, each a decision with its status.
func AppendBatch(b []byte, tenant *rules.Tenant, checks []enforce.Check, decisions []enforce.Decision) []byte {
	b = append(b, `{"results":[`...)
	for i := range decisions {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"status":`...), int64(Status(&decisions[i])), 10)
		b = append(appendMembers(append(b, ','), &decisions[i], Jitter(tenant, &checks[i].Request)), '}')
	}
	return append(b, `]}`...)
}

func appendMembers(b []byte, d *enforce.Decision, jitter int64) []byte {
	b = strconv.AppendBool(append(b, `"allowed":`...), d.Allowed)
	b = httpapi.AppendText(append(b, `,"plan":`...), d.Plan)
	deciding := d.DecidingTier()
	switch {
	case d.Allowed:
		b = append(b, `,"violated_tier":null,"violated_rule":null,"violated_rule_id":null,"reason":null`...)
	case deciding == nil:
		b = append(b, `,"violated_tier":null,"violated_rule":null,"violated_rule_id":null`...)
		b = httpapi.AppendText(append(b, `,"reason":`...), string(d.Reason))
	default:
		rule := deciding.Match.Rule
		b = httpapi.AppendText(append(b, `,"violated_tier":`...), string(rule.Scope()))
		b = httpapi.AppendText(append(b, `,"violated_rule":`...), rule.Pattern.String())
		b = strconv.AppendInt(append(b, `,"violated_rule_id":`...), int64(rule.ID), 10)
		b = httpapi.AppendText(append(b, `,"reason":`...), string(d.Reason))
	}
	b = append(b, `,"retry_after_ms":`...)
	switch {
	case d.Allowed:
		b = append(b, '0')
	case deciding == nil:
		b = httpapi.AppendMillis(b, reservationRetryAfter)
	default:
		b = appendWait(b, deciding)
	}
	b = appendLimit(append(b, `,"limit":`...), deciding)
	b = append(b, `,"remaining":`...)
	if deciding != nil && deciding.BucketRead {
		b = strconv.AppendInt(b, deciding.Remaining.Whole(), 10)
	} else {
		b = append(b, `null`...)
	}
	b = appendReset(append(b, `,"reset_after_ms":`...), deciding)
	if isJittered(d) {
		b = appendJitter(b, jitter)
	}
	if d.Delay > 0 {
		b = httpapi.AppendMillis(append(b, `,"delay_ms":`...), d.Delay)
	}
	if d.HasReservation {
		b = httpapi.AppendText(append(b, `,"reservation":`...), d.Reservation.String())
	}
	if d.Record {
		b = strconv.AppendBool(append(b, `,"recorded":`...), d.Allowed && !d.Repeated)
	}
	b = strconv.AppendBool(append(b, `,"degraded":`...), d.Degraded)
	b = append(b, `,"tiers":[`...)
	for i := range d.Tiers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTier(b, &d.Tiers[i], d.Record)
	}
	return append(b, ']')
}

// A client answers Retry-After as the server does by this member.
func appendJitter(b []byte, jitter int64) []byte {
	if jitter == 0 {
		return b
	}
	const percent = jitterScale / 100
	b = strconv.AppendInt(append(b, `,"retry_jitter_percent":`...), jitter/percent, 10)
	if rest := jitter % percent; rest > 0 {
		b = append(b, '.', byte('0'+rest/10), byte('0'+rest%10))
	}
	return b
}

func appendTier(b []byte, t *enforce.TierDecision, isRecord bool) []byte {
	b = appendRule(append(b, '{'), t.Match.Rule, t.Match.Mode)
	b = strconv.AppendBool(append(b, `,"allowed":`...), t.Allowed)
	b = appendLimit(append(b, `,"limit":`...), t)
	b = append(b, `,"remaining":`...)
	if t.BucketRead {
		b = appendTokens(b, t.Remaining)
	} else {
		b = append(b, `null`...)
	}
	b = appendWait(append(b, `,"retry_after_ms":`...), t)
	b = appendReset(append(b, `,"reset_after_ms":`...), t)
	if hasPolicy(t) {
		b = httpapi.AppendMillis(append(b, `,"window_ms":`...), t.Window())
		b = httpapi.AppendMillis(append(b, `,"more_after_ms":`...), t.MoreAfter())
	}
	if t.Delay > 0 {
		b = httpapi.AppendMillis(append(b, `,"delay_ms":`...), t.Delay)
	}
	if isRecord || t.Match.Rule.ChargedAfter && t.BucketRead {
		b = appendTokens(append(b, `,"charged":`...), t.Charged)
	}
	return append(b, '}')
}

func appendRule(b []byte, rule *rules.Rule, mode rules.Mode) []byte {
	b = strconv.AppendInt(append(b, `"rule_id":`...), int64(rule.ID), 10)
	b = httpapi.AppendString(append(b, `,"name":`...), rule.Name)
	b = httpapi.AppendText(append(b, `,"scope":`...), string(rule.Scope()))
	b = httpapi.AppendText(append(b, `,"key_pattern":`...), rule.Pattern.String())
	if rule.Meter != "" {
		b = httpapi.AppendText(append(b, `,"meter":`...), string(rule.Meter))
	}
	return httpapi.AppendText(append(b, `,"mode":`...), string(mode))
}

func appendLimit(b []byte, t *enforce.TierDecision) []byte {
	if t == nil || t.Match.Rule.Action != rules.ActionLimit {
		return append(b, `null`...)
	}
	return strconv.AppendInt(b, t.Limit.Burst, 10)
}

// appendWait appends null if no wait helps.
func appendWait(b []byte, t *enforce.TierDecision) []byte {
	switch t.Reason {
	case enforce.Blocked, enforce.CostExceedsLimit:
		return append(b, `null`...)
	case enforce.StoreUnavailable:
		return httpapi.AppendMillis(b, storeRetryAfter)
	}
	return httpapi.AppendMillis(b, t.RetryAfter)
}

func appendReset(b []byte, t *enforce.TierDecision) []byte {
	if t == nil || !t.BucketRead || t.Limit.Kind == rules.KindConcurrency {
		return append(b, `null`...)
	}
	return httpapi.AppendMillis(b, t.ResetAfter)
}

func appendList[T any](b []byte, list []T, element func([]byte, *T) []byte) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, &list[i])
	}
	return append(b, ']')
}

func appendTokens(b []byte, t enforce.Tokens) []byte {
	t = max(t, 0)
	b = strconv.AppendInt(b, t.Whole(), 10)
	decimals := t % enforce.Token
	if decimals == 0 {
		return b
	}
	b = append(b, '.')
	for unit := enforce.Token / 10; decimals > 0; unit /= 10 {
		b = append(b, byte('0'+decimals/unit))
		decimals %= unit
	}
	return b
}
