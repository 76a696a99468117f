package snapshot

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Match appends the rules that a request on a plan meets to dst, in ascending order of rule id.
// Inactive and expired rules are never met, and a rule with a plan is met by checks on that plan alone. now
// decides whether a rule or an override has expired. The matches' strings and rules belong to the Snapshot
// and the request: do not change them.
//
// What it costs depends on the rules that match and on how many shapes the tenant's rules have (see
// index), not on how many rules there are. It allocates only what it must: to grow dst, and for a
// subject that is not the request's own text, which is a masked address (once for all its rules)
// or several values joined.
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
	// Only now are rules read, all of them in a few instructions, for a processor to wait for them at once.
	for i := range dst[start:] {
		m := &dst[start+i]
		m.Mode, m.FailureMode = t.modesOf(m.Rule)
	}
	slices.SortFunc(dst[start:], func(a, b rules.Match) int { return cmp.Compare(a.Rule.ID, b.Rule.ID) })
	return dst
}

// modesOf returns the modes that are in force for a rule. It is the one place where the tenant's switch
// for bad days acts.
func (t *Tenant) modesOf(rule *rules.Rule) (rules.Mode, rules.FailureMode) {
	mode := rule.Mode
	if t.Tenant.InShadow && rule.Action != rules.ActionBypass {
		mode = rules.ModeShadow
	}
	return mode, t.failureMode(rule)
}

// failureMode returns the failure mode of a rule: its own, or its tenant's if it has none that is known.
func (t *Tenant) failureMode(rule *rules.Rule) rules.FailureMode {
	if rule.FailureMode == "" || rule.Unknown != "" && !rule.FailureMode.Known() {
		return t.Tenant.Settings.FailureMode
	}
	return rule.FailureMode
}

// limitFor returns the rule's effective limit for a user whose own buckets it has. A candidate is tried with the overrides of its
// live rule, which hold after it is promoted.
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

// meets says whether the request meets an active rule. It is what matching means; the index only
// keeps it from being asked for every rule.
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

// holdsValue says whether the request fulfils a segment, apart from its method. An empty field has
// no value, which fulfils nothing.
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

// subjectKind says what a rule's subjects are: the one value that has placeholders in its pattern.
type subjectKind uint8

const (
	noSubject subjectKind = iota // everybody shares one bucket
	userSubject
	endpointSubject
	ipSubject
	otherSubject // an attribute's value, or several values
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

// subject returns whose bucket of the rule the request uses, and whether one of its placeholders is
// the user.
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

// joinedSubject is one value as it is, or several joined by AppendSubject.
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
	joined := make([]byte, 0, 128) // on the stack, if that is enough
	for i := range segments {
		if !segments[i].Placeholder {
			continue
		}
		joined = rules.AppendSubject(joined, q.value(&segments[i], settings))
	}
	return string(joined), splitsByUser
}

// value returns the request's value for a placeholder.
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

// maskedIP returns the network that stands for the request's address, printed: 203.0.113.9 for a
// whole address, 2001:db8::/64 for a network.
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
		// Validation keeps bits in range. If it ever did not, each address by itself is the
		// narrowest bucket, and no two share one.
		q.ipText = q.ip.String()
	} else {
		q.ipText = network.String()
	}
	return q.ipText
}
