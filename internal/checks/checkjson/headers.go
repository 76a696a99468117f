package checkjson

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// Headers collects header fields in one buffer. The zero value is empty.
type Headers struct {
	text   []byte
	fields []headerField
}

type headerField struct {
	name string // as it goes over HTTP/1
	end  int    // of the value in text; it starts where the one before ends
}

// Reset drops the fields and keeps the memory.
func (t *Headers) Reset() { t.text, t.fields = t.text[:0], t.fields[:0] }

func (t *Headers) endField(name string) {
	t.fields = append(t.fields, headerField{name, len(t.text)})
}

func (t *Headers) addInt(name string, value int64) {
	t.text = strconv.AppendInt(t.text, value, 10)
	t.endField(name)
}

// All yields names in the spelling of HTTP/1, and values.
func (t *Headers) All() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		start := 0
		for _, f := range t.fields {
			if !yield(f.name, t.text[start:f.end]) {
				return
			}
			start = f.end
		}
	}
}

// Strings is All with strings, which share the memory of one.
func (t *Headers) Strings() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		text, start := string(t.text), 0
		for _, f := range t.fields {
			if !yield(f.name, text[start:f.end]) {
				return
			}
			start = f.end
		}
	}
}

// AddRateLimit adds the rate-limit headers:
//
//	RateLimit-Policy: "user-12";q=50;w=5
//	RateLimit: "user-12";r=0;t=1
//	X-RateLimit-Limit: 50
//	X-RateLimit-Remaining: 0
//	X-RateLimit-Reset: 1797000005
//	Retry-After: 1
//	X-Sluice-Reason: limit_exceeded
//
// RateLimit and RateLimit-Policy follow draft-ietf-httpapi-ratelimit-headers-11 (May 2026), with one item for each
// enforced tier whose bucket was read, except concurrency limits. q is the burst, w the seconds that earn it or the
// window's length, and qu the meter; r is the rest in whole tokens, and t the seconds until there is more. A caller
// that spends r and waits t is not denied.
//
// X-RateLimit-Reset is when the fixed window ends by the store's clock, or when the bucket is full. Retry-After is the
// wait plus the caller's jitter, at least 1 and never before t (section 6 of the draft). All seconds are rounded up.
func (t *Headers) AddRateLimit(d *enforce.Decision, now time.Time, jitter int64) {
	t.addItems(policyField, d, appendRuleName, appendPolicyItem)
	t.addItems(limitField, d, appendRuleName, appendServiceLimitItem)
	deciding := d.DecidingTier()
	if deciding != nil && deciding.BucketRead && deciding.Limit.Kind != rules.KindConcurrency {
		t.addInt("X-RateLimit-Limit", deciding.Limit.Burst)
		t.addInt("X-RateLimit-Remaining", deciding.Remaining.Whole())
		reset := time.Duration(now.UnixNano()) + deciding.ResetAfter
		if deciding.Limit.Kind == rules.KindFixedWindow { // by the store's clock, which ends the window
			_, end := deciding.Limit.WindowAt(deciding.Stamp)
			reset = time.Duration(end) * time.Microsecond
		}
		t.addInt("X-RateLimit-Reset", seconds(reset))
	}
	if d.Allowed {
		return
	}
	switch {
	case isJittered(d):
		t.addInt("Retry-After", retryAfter(deciding.RetryAfter, jitter))
	case d.Reason == enforce.ReservationsExhausted:
		t.addInt("Retry-After", seconds(reservationRetryAfter))
	case d.Reason == enforce.StoreUnavailable:
		t.addInt("Retry-After", seconds(storeRetryAfter))
	}
	t.text = append(t.text, d.Reason...)
	t.endField("X-Sluice-Reason")
}

// AddServiceLimit adds RateLimit-Policy, RateLimit and Retry-After, by the rules' names, which must need no escaping.
func (t *Headers) AddServiceLimit(d *enforce.Decision) {
	t.addItems(policyField, d, appendGivenName, appendPolicyItem)
	t.addItems(limitField, d, appendGivenName, appendServiceLimitItem)
	if deciding := d.DecidingTier(); deciding != nil && !d.Allowed {
		t.addInt("Retry-After", retryAfter(deciding.RetryAfter, 0))
	}
}

func hasPolicy(t *enforce.TierDecision) bool {
	return t.BucketRead && t.Enforced() && t.Limit.Kind != rules.KindConcurrency
}

// ViolatedPolicies returns the names in RateLimit-Policy of the tiers that deny.
func ViolatedPolicies(d *enforce.Decision) (names []string) {
	for i := range d.Tiers {
		if t := &d.Tiers[i]; !d.Allowed && !t.Allowed && hasPolicy(t) {
			names = append(names, string(appendRuleName(nil, t)))
		}
	}
	return names
}

type appendItem func([]byte, *enforce.TierDecision) []byte

func (t *Headers) addItems(name string, d *enforce.Decision, appendName, appendRest appendItem) {
	start := len(t.text)
	for i := range d.Tiers {
		tier := &d.Tiers[i]
		if !hasPolicy(tier) {
			continue
		}
		if len(t.text) > start {
			t.text = append(t.text, ", "...)
		}
		t.text = append(appendName(append(t.text, '"'), tier), '"')
		t.text = appendRest(t.text, tier)
	}
	if len(t.text) > start {
		t.endField(name)
	}
}

func appendRuleName(b []byte, t *enforce.TierDecision) []byte {
	return strconv.AppendInt(append(append(b, t.Match.Rule.Scope()...), '-'), int64(t.Match.Rule.ID), 10)
}

func appendGivenName(b []byte, t *enforce.TierDecision) []byte {
	return append(b, t.Match.Rule.Name...)
}

// The spelling of the draft, which may still change.
const (
	policyField, limitField         = "RateLimit-Policy", "RateLimit"
	quotaParameter, windowParameter = ";q=", ";w="
	restParameter, resetParameter   = ";r=", ";t="
	unitParameter                   = `;qu="`
)

func appendPolicyItem(b []byte, t *enforce.TierDecision) []byte {
	b = strconv.AppendInt(append(b, quotaParameter...), t.Limit.Burst, 10)
	b = strconv.AppendInt(append(b, windowParameter...), max(1, seconds(t.Window())), 10)
	if meter := t.Match.Rule.Meter; meter != "" {
		b = append(append(append(b, unitParameter...), meter...), '"')
	}
	return b
}

func appendServiceLimitItem(b []byte, t *enforce.TierDecision) []byte {
	b = strconv.AppendInt(append(b, restParameter...), t.Remaining.Whole(), 10)
	return strconv.AppendInt(append(b, resetParameter...), seconds(t.MoreAfter()), 10)
}

func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

func isJittered(d *enforce.Decision) bool {
	return d.Reason == enforce.LimitExceeded || d.Reason == enforce.ConcurrencyExceeded
}

// A jitter of jitterScale doubles a wait: its unit is a hundredth of a percent.
const jitterScale = 10_000

// retryAfter is max(1, ceil(wait × (1 + jitter))) in seconds; in microseconds a year's wait does not overflow.
func retryAfter(wait time.Duration, jitter int64) int64 {
	micros := int64((wait + time.Microsecond - 1) / time.Microsecond)
	const scale = jitterScale * int64(time.Second/time.Microsecond)
	return max(1, (micros*(jitterScale+jitter)+scale-1)/scale)
}

// Jitter lengthens a wait, so that callers denied together do not return together; as a hash, all processes agree.
// SHA-256 spreads evenly; FNV would give neighbouring ids neighbouring values.
func Jitter(tenant *rules.Tenant, request *rules.Request) int64 {
	maxJitter := uint64(tenant.Settings.RetryJitterPercent) * (jitterScale / 100)
	if maxJitter == 0 {
		return 0
	}
	var memory [320]byte
	identity := binary.BigEndian.AppendUint64(memory[:0], uint64(tenant.ID))
	switch {
	case request.UserID != "":
		identity = append(append(identity, "user:"...), request.UserID...)
	case request.IP.IsValid():
		identity = request.IP.AppendTo(append(identity, "ip:"...))
	}
	sum := sha256.Sum256(identity)
	return int64(binary.BigEndian.Uint64(sum[:]) % (maxJitter + 1))
}
