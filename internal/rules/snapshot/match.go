package snapshot

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Match appends the active, unexpired rules that match a request on a plan, sorted by id. Do not modify their strings
// and rules, which belong to the Snapshot and the request.
//
// The cost depends on the number of matches and shapes, not of rules: see index. Allocations grow dst, and make
// subjects of a masked address or several joined values.
func (t *Tenant) Match(r *rules.Request, plan string, now time.Time, dst []rules.Match) []rules.Match {
	q := t.index.query(r, plan)
	micros := now.UnixMicro()
	start := len(dst)
	t.index.visit(&q, func(c *candidate) {
		if c.expires != 0 && c.expires <= micros {
			return
		}
		subject, splitsByUser := q.subject(c, &t.Tenant.Settings)
		limit := c.limit
		if splitsByUser && t.overrides.size > 0 {
			limit = t.limitFor(c.rule, r.UserID, micros)
		} else if c.adapts {
			limit = t.ownLimit(c.rule, micros)
		}
		dst = append(dst, rules.Match{Rule: c.rule, Limit: limit, Subject: subject})
	})
	for i := range dst[start:] {
		m := &dst[start+i]
		m.Mode, m.FailureMode = t.modesOf(m.Rule)
	}
	slices.SortFunc(dst[start:], func(a, b rules.Match) int { return cmp.Compare(a.Rule.ID, b.Rule.ID) })
	return dst
}

// The tenant's emergency switch acts here alone.
func (t *Tenant) modesOf(rule *rules.Rule) (rules.Mode, rules.FailureMode) {
	mode := rule.Mode
	if t.Tenant.InShadow && rule.Action != rules.ActionBypass {
		mode = rules.ModeShadow
	}
	return mode, t.failureMode(rule)
}

func (t *Tenant) failureMode(rule *rules.Rule) rules.FailureMode {
	if rule.FailureMode == "" || rule.Unknown != "" && !rule.FailureMode.Known() {
		return t.Tenant.Settings.FailureMode
	}
	return rule.FailureMode
}

// limitFor uses for a candidate the overrides of its live rule, which apply after a promotion.
func (t *Tenant) limitFor(rule *rules.Rule, user string, now int64) rules.Limit {
	if rule.Action == rules.ActionLimit {
		o, ok := t.overrides.get(overrideKey{rule.ID, user})
		if !ok && rule.CandidateFor != 0 {
			o, ok = t.overrides.get(overrideKey{rule.CandidateFor, user})
		}
		if ok {
			return o.effective(rule, t.ownLimit(rule, now), now)
		}
	}
	return t.ownLimit(rule, now)
}

// meets decides; the index only narrows down the rules to ask.
func (q *query) meets(rule *rules.Rule) bool {
	if rule.Plan != "" && rule.Plan != q.plan {
		return false
	}
	segments := rule.Pattern.Segments()
	for i := range segments {
		if !q.holdsValue(&segments[i]) || !q.holdsMethod(&segments[i]) {
			return false
		}
	}
	return len(segments) > 0
}

func (q *query) holdsValue(s *rules.Segment) bool {
	switch s.Field {
	case rules.FieldGlobal:
		return true
	case rules.FieldUser:
		return q.UserID != "" && (s.Placeholder || q.UserID == s.Value)
	case rules.FieldEndpoint:
		return q.Endpoint != "" && (s.Placeholder || holdsEndpoint(s, q.Endpoint))
	case rules.FieldIP:
		return q.ip.IsValid() && (s.Placeholder || s.Prefix.Contains(q.ip))
	case rules.FieldAttribute:
		value := q.Attribute(s.Attribute)
		return value != "" && (s.Placeholder || value == s.Value)
	}
	return false
}

func (q *query) holdsMethod(s *rules.Segment) bool { return s.Method == "" || q.Method == s.Method }

func holdsEndpoint(s *rules.Segment, endpoint string) bool {
	if s.Below {
		return strings.HasPrefix(endpoint, s.Value)
	}
	return endpoint == s.Value
}

type subjectKind uint8

const (
	noSubject subjectKind = iota // one bucket for all
	userSubject
	endpointSubject
	ipSubject
	otherSubject // an attribute, or several values
)

func subjectKindOf(segments []rules.Segment) subjectKind {
	kind := noSubject
	for i := range segments {
		switch s := &segments[i]; {
		case !s.Placeholder:
		case kind != noSubject:
			return otherSubject
		default:
			kind = subjectKindOfField(s.Field)
		}
	}
	return kind
}

func subjectKindOfField(f rules.Field) subjectKind {
	switch f {
	case rules.FieldUser:
		return userSubject
	case rules.FieldEndpoint:
		return endpointSubject
	case rules.FieldIP:
		return ipSubject
	}
	return otherSubject
}

func (q *query) subject(c *candidate, settings *rules.Settings) (subject string, splitsByUser bool) {
	switch c.subject {
	case noSubject:
		return "", false
	case userSubject:
		return q.UserID, true
	case endpointSubject:
		return q.Endpoint, false
	case ipSubject:
		return q.maskedIP(settings), false
	}
	return q.joinedSubject(c.rule.Pattern.Segments(), settings)
}

func (q *query) joinedSubject(segments []rules.Segment, settings *rules.Settings) (subject string, splitsByUser bool) {
	placeholders := 0
	for i := range segments {
		if !segments[i].Placeholder {
			continue
		}
		placeholders++
		subject = q.value(&segments[i], settings)
		splitsByUser = splitsByUser || segments[i].Field == rules.FieldUser
	}
	if placeholders < 2 {
		return subject, splitsByUser
	}
	joined := make([]byte, 0, 128) // stays on the stack if large enough
	for i := range segments {
		if !segments[i].Placeholder {
			continue
		}
		joined = rules.AppendSubject(joined, q.value(&segments[i], settings))
	}
	return string(joined), splitsByUser
}

func (q *query) value(s *rules.Segment, settings *rules.Settings) string {
	switch s.Field {
	case rules.FieldUser:
		return q.UserID
	case rules.FieldEndpoint:
		return q.Endpoint
	case rules.FieldIP:
		return q.maskedIP(settings)
	case rules.FieldAttribute:
		return q.Attribute(s.Attribute)
	case rules.FieldGlobal:
	}
	return ""
}

func (q *query) maskedIP(settings *rules.Settings) string {
	if q.ipText != "" {
		return q.ipText
	}
	bits := settings.IPv4Prefix
	if q.ip.Is6() {
		bits = settings.IPv6Prefix
	}
	network, err := q.ip.Prefix(bits)
	if err != nil || network.IsSingleIP() {
		// Validation keeps bits in range.
		q.ipText = q.ip.String()
	} else {
		q.ipText = network.String()
	}
	return q.ipText
}
