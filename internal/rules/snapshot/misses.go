package snapshot

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// missScan bounds Misses to about ten milliseconds.
const missScan = 100_000

// Miss is a rule that a request nearly matches.
type Miss struct {
	Rule   *rules.Rule
	Reason string
}

// Misses returns up to limit rules that do not match, by the number of failed conditions and then by id, of those with
// the hundred thousand lowest ids. The scan is for explanations, not for checks.
func (t *Tenant) Misses(r *rules.Request, plan string, now time.Time, limit int) []Miss {
	q := t.index.query(r, plan)
	limit = max(limit, 0)
	var nearest [][]*rules.Rule // by the number of failed conditions, each at most limit long
	var failures []failure
	for _, rule := range t.index.rules[:min(len(t.index.rules), missScan)] {
		failures = q.failures(rule, now, failures[:0])
		for len(nearest) <= len(failures) {
			nearest = append(nearest, nil)
		}
		if same := &nearest[len(failures)]; len(failures) > 0 && len(*same) < limit {
			*same = append(*same, rule)
		}
	}
	var misses []Miss
	for _, all := range nearest {
		for _, rule := range all[:min(len(all), limit-len(misses))] {
			misses = append(misses, Miss{Rule: rule, Reason: q.reason(rule, now)})
		}
	}
	return misses
}

type failure struct {
	kind    failureKind
	segment *rules.Segment // of a failed method or value
}

type failureKind uint8

const (
	isOff failureKind = iota
	isOver
	isOtherPlan
	isOtherMethod
	isOtherValue // or the request has none
)

func (q *query) failures(rule *rules.Rule, now time.Time, dst []failure) []failure {
	if !rule.Active {
		dst = append(dst, failure{kind: isOff})
	}
	if rule.HasExpired(now) {
		dst = append(dst, failure{kind: isOver})
	}
	if rule.Plan != "" && rule.Plan != q.plan {
		dst = append(dst, failure{kind: isOtherPlan})
	}
	segments := rule.Pattern.Segments()
	for i := range segments {
		s := &segments[i]
		if !q.holdsValue(s) {
			dst = append(dst, failure{isOtherValue, s})
		}
		if !q.holdsMethod(s) {
			dst = append(dst, failure{isOtherMethod, s})
		}
	}
	return dst
}

func (q *query) reason(rule *rules.Rule, now time.Time) string {
	var reasons []string
	for _, f := range q.failures(rule, now, nil) {
		switch f.kind {
		case isOff:
			reasons = append(reasons, "is off")
		case isOver:
			reasons = append(reasons, "expired at "+rule.ExpiresAt.UTC().Format(time.RFC3339))
		case isOtherPlan:
			reasons = append(reasons, "is for plan "+rule.Plan+"; the check is on "+orNone(q.plan))
		case isOtherMethod:
			reasons = append(reasons, otherReason("a method", "method", q.Method, f.segment.Method))
		case isOtherValue:
			reasons = append(reasons, q.valueReason(f.segment))
		}
	}
	return strings.Join(reasons, "; and ")
}

func (q *query) valueReason(s *rules.Segment) string {
	switch s.Field {
	case rules.FieldUser:
		return otherReason("a user", "user", q.UserID, s.Value)
	case rules.FieldEndpoint:
		wanted := s.Value
		if s.Below {
			wanted = "below " + wanted
		}
		return otherReason("an endpoint", "endpoint", q.Endpoint, wanted)
	case rules.FieldIP:
		wanted, given := s.Prefix.String(), ""
		if s.Prefix.IsSingleIP() {
			wanted = s.Prefix.Addr().String()
		}
		if q.ip.IsValid() {
			given = q.ip.String()
		}
		return otherReason("an ip", "ip", given, wanted)
	case rules.FieldAttribute:
		name := "attribute " + s.Attribute
		return otherReason("the "+name, name, q.Attribute(s.Attribute), s.Value)
	case rules.FieldGlobal:
	}
	return ""
}

func otherReason(a, name, given, wanted string) string {
	if given == "" {
		return "needs " + a + ", the check has none"
	}
	return name + " is " + given + ", the rule wants " + wanted
}

func orNone(plan string) string {
	if plan == "" {
		return "none"
	}
	return plan
}
