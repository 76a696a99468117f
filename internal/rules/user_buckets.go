package rules

import (
	"strconv"
	"strings"
	"time"
)

// UserBuckets returns up to limit of the buckets that a user id alone fixes, in order of rule id: of
// active limits, enforced or shadow, that apply to the user's plan or to all, those with the user in
// their pattern and no placeholder but {user_id}. Such are user:{user_id}, user:{user_id}:endpoint:/a
// and the rule user:42 of user 42; endpoint:/a is everybody's, and user:{user_id}:ip:{ip} has as many
// buckets as the user has addresses.
//
// Each is the Match that a check of the user would get on the plan that PlanOf says without one
// named. A look at 100,000 rules takes some milliseconds: it is for people, not for every check.
func (t *TenantRules) UserBuckets(userID string, now time.Time, limit int) []Match {
	plan := t.Tenant.DefaultPlan
	if assigned, ok := t.AssignedPlan(userID); ok {
		plan = assigned
	}
	var buckets []Match
	for _, rule := range t.index.rules {
		if len(buckets) >= limit {
			break
		}
		if !rule.Active || rule.Action != ActionLimit || rule.Plan != "" && rule.Plan != plan {
			continue
		}
		if subject, ok := rule.Pattern.subjectOfUser(userID); ok {
			buckets = append(buckets, t.match(rule, subject, userID, now))
		}
	}
	return buckets
}

// Bucket returns what stands behind a bucket that somebody names, such as that of a violation: the
// rule, with the limit that holds for the bucket's user. It is false if the tenant has no such rule,
// if the rule is no limit, or if no check has that subject for it. The rule may be inactive, and be
// for another plan than its user is on.
func (t *TenantRules) Bucket(id RuleID, subject string, now time.Time) (Match, bool) {
	rule, ok := t.rules.get(id)
	if !ok || rule.Action != ActionLimit {
		return Match{}, false
	}
	user, ok := rule.Pattern.userOfSubject(subject)
	if !ok {
		return Match{}, false
	}
	return t.match(rule, subject, user, now), true
}

// Owner returns the user whose bucket a match is, or "" if it is not one user's, as those of global,
// endpoint:/a and ip:{ip} are not.
func (m *Match) Owner() string {
	for _, segment := range m.Rule.Pattern.segments {
		if segment.Field == FieldUser && !segment.Placeholder {
			return segment.Value
		}
	}
	user, _ := m.Rule.Pattern.userOfSubject(m.Subject)
	return user
}

// match returns the Match of a rule for a user; without one, the rule's own limit holds.
func (t *TenantRules) match(rule *Rule, subject, user string, now time.Time) Match {
	limit := rule.ownLimit()
	if user != "" {
		limit = t.limitFor(rule, user, now.UnixMicro())
	}
	mode, failureMode := t.modesOf(rule)
	return Match{Rule: rule, Limit: limit, Mode: mode, FailureMode: failureMode, Subject: subject}
}

// subjectOfUser returns the subject that the user id alone makes; ok is false if there is none,
// because the pattern does not ask for this user or because other values make it too.
func (p Pattern) subjectOfUser(userID string) (subject string, ok bool) {
	for i := range p.segments {
		s := &p.segments[i]
		switch {
		case s.Field == FieldUser && s.Placeholder:
			subject, ok = userID, userID != ""
		case s.Field == FieldUser:
			ok = userID == s.Value
		case s.Placeholder:
			return "", false
		}
	}
	return subject, ok
}

// userOfSubject returns the user whose bucket a subject of the pattern is, or "" if the pattern has
// no {user_id}; ok is false if it is no subject of the pattern.
func (p Pattern) userOfSubject(subject string) (user string, ok bool) {
	at, placeholders := -1, 0
	for i := range p.segments {
		if !p.segments[i].Placeholder {
			continue
		}
		if p.segments[i].Field == FieldUser {
			at = placeholders
		}
		placeholders++
	}
	values, ok := splitSubject(subject, placeholders)
	if !ok || at < 0 {
		return "", ok
	}
	return values[at], true
}

// splitSubject takes a subject apart into the values of so many placeholders, as query.joinedSubject put it
// together; ok is false for any text that it never makes.
func splitSubject(subject string, placeholders int) (values []string, ok bool) {
	switch placeholders {
	case 0:
		return nil, subject == ""
	case 1:
		return []string{subject}, subject != ""
	}
	rest := subject
	for i := range placeholders {
		if i > 0 {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				return nil, false
			}
		}
		digits, after, found := strings.Cut(rest, ":")
		length, err := strconv.Atoi(digits)
		if !found || err != nil || strconv.Itoa(length) != digits || length < 1 || length > len(after) {
			return nil, false
		}
		values, rest = append(values, after[:length]), after[length:]
	}
	return values, rest == ""
}
