package snapshot

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// UserBuckets returns up to limit of the buckets that a user id alone fixes, in order of rule id: of
// active limits, enforced or shadow, that apply to the user's plan or to all, those with the user in
// their pattern and no placeholder but {user_id}. Such are user:{user_id}, user:{user_id}:endpoint:/a
// and the rule user:42 of user 42; endpoint:/a is everybody's, and user:{user_id}:ip:{ip} has as many
// buckets as the user has addresses.
//
// Each is the Match that a check of the user would get on the plan that PlanOf says without one
// named. A look at 100,000 rules takes some milliseconds: it is for people, not for every check.
func (t *Tenant) UserBuckets(userID string, now time.Time, limit int) []rules.Match {
	plan := t.Tenant.DefaultPlan
	if assigned, ok := t.AssignedPlan(userID); ok {
		plan = assigned
	}
	var buckets []rules.Match
	for _, rule := range t.index.rules {
		if len(buckets) >= limit {
			break
		}
		if !rule.Active || rule.Action != rules.ActionLimit || rule.Plan != "" && rule.Plan != plan {
			continue
		}
		if subject, ok := rule.Pattern.SubjectOfUser(userID); ok {
			buckets = append(buckets, t.match(rule, subject, userID, now))
		}
	}
	return buckets
}

// Bucket returns what stands behind a bucket that somebody names, such as that of a violation: the
// rule, with the limit that holds for the bucket's user. It is false if the tenant has no such rule,
// if the rule is no limit, or if no check has that subject for it. The rule may be inactive, and be
// for another plan than its user is on.
func (t *Tenant) Bucket(id rules.RuleID, subject string, now time.Time) (rules.Match, bool) {
	rule, ok := t.rules.get(id)
	if !ok || rule.Action != rules.ActionLimit {
		return rules.Match{}, false
	}
	user, ok := rule.Pattern.UserOfSubject(subject)
	if !ok {
		return rules.Match{}, false
	}
	return t.match(rule, subject, user, now), true
}

// match returns the Match of a rule for a user; without one, the rule's own limit holds.
func (t *Tenant) match(rule *rules.Rule, subject, user string, now time.Time) rules.Match {
	limit := rule.Limit()
	if user != "" {
		limit = t.limitFor(rule, user, now.UnixMicro())
	}
	mode, failureMode := t.modesOf(rule)
	return rules.Match{Rule: rule, Limit: limit, Mode: mode, FailureMode: failureMode, Subject: subject}
}
