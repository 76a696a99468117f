package snapshot

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// recentEdit is how long after an edit a process that knows nothing of the time before it takes it for one that
// slows. Later, another process has settled the buckets, or they are gone.
const recentEdit = time.Minute

// Expired returns the slowdowns by overrides that expired after one moment and not after another. It looks at
// every override: 50 ms for a million.
func (s *Snapshot) Expired(after, until time.Time) []rules.Slowdown {
	var slowed []rules.Slowdown
	from, to := after.UnixMicro(), until.UnixMicro()
	for id, t := range s.tenants.all() {
		for key, o := range t.overrides.all() {
			if o.expiresAt <= from || o.expiresAt > to || o.removedAt != 0 {
				continue
			}
			rule, ok := t.rules.get(key.rule)
			if !ok {
				continue
			}
			was := rule.Limit().Overridden(o.rate, o.burst, o.since)
			if limit := t.bucketLimit(rule, key.user, to); limit.FillsLaterThan(was) {
				slowed = append(slowed, rules.Slowdown{
					Tenant: id, Rule: key.rule, User: key.user, From: was.Since, To: limit.Since,
				})
			}
		}
	}
	return slowed
}

// bucketLimit returns the limit of a user's buckets, which is zero if the rule has none.
func (t *Tenant) bucketLimit(rule *rules.Rule, user string, now int64) rules.Limit {
	if rule.Action != rules.ActionLimit {
		return rules.Limit{}
	}
	return t.limitFor(rule, user, now)
}

// noteRule notes a rule's row if its buckets fill later than before.
func (t *tenantDraft) noteRule(row *rules.Rule) {
	to := ruleBucketLimit(row)
	from, since := rules.Limit{}, int64(0)
	if was, ok := t.was.rules.get(row.ID); ok {
		from, since = ruleBucketLimit(was), rules.UnixMicro(was.InForceSince)
	} else if row.Version == 1 || t.now-to.Since > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != since {
		t.slowed = append(t.slowed, rules.Slowdown{Tenant: t.tenant.ID, Rule: row.ID, From: since, To: to.Since})
	}
}

// ruleBucketLimit returns the rule's own limit, which is zero if it has none.
func ruleBucketLimit(r *rules.Rule) rules.Limit {
	if r.Action != rules.ActionLimit {
		return rules.Limit{}
	}
	return r.Limit()
}

// noteOverride notes an override's row if the user's buckets fill later than before. Rules come before overrides.
func (t *tenantDraft) noteOverride(key overrideKey, next override) {
	if was, ok := t.was.overrides.get(key); ok && was == next {
		return
	}
	rule, ok := t.rules.get(key.rule)
	if !ok || rule.Action != rules.ActionLimit {
		return
	}
	to, from := next.effective(rule, rule.Limit(), t.now), rules.Limit{}
	if was, ok := t.was.rules.get(key.rule); ok {
		from = t.was.bucketLimit(was, key.user, t.now)
	} else if t.now-rules.UnixMicro(rule.CreatedAt) < recentEdit.Microseconds() || t.now-to.Since > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != from.Since {
		t.slowed = append(t.slowed, rules.Slowdown{
			Tenant: t.tenant.ID, Rule: key.rule, User: key.user, From: from.Since, To: to.Since,
		})
	}
}

// BucketOfUser returns the one bucket of a rule that is a user's, and its limit; ok is false if there is no such
// rule, or if it has other buckets of the user, or none.
func (t *Tenant) BucketOfUser(id rules.RuleID, user string, now time.Time) (m rules.Match, ok bool) {
	rule, found := t.rules.get(id)
	if !found || rule.Action != rules.ActionLimit {
		return rules.Match{}, false
	}
	subject, ok := rule.Pattern.SubjectOfUser(user)
	if !ok {
		return rules.Match{}, false
	}
	return t.match(rule, subject, user, now), true
}

// CommonLimit returns the limit of all buckets of a rule; ok is false if there is no such rule, or if users have
// have or had overrides for it, or if it has or had steps.
func (t *Tenant) CommonLimit(id rules.RuleID) (limit rules.Limit, ok bool) {
	rule, found := t.rules.get(id)
	if !found || rule.Action != rules.ActionLimit {
		return rules.Limit{}, false
	}
	if rule.Pattern.SplitsByUser() && (t.overridden()[id] || t.overridden()[rule.CandidateFor]) {
		return rules.Limit{}, false
	}
	if _, stepped := t.steps.get(id); stepped {
		return rules.Limit{}, false
	}
	return rule.Limit(), true
}

// rulesOf returns the rules that overrides are for: 50 ms for a million.
func rulesOf(overrides table[overrideKey, override]) map[rules.RuleID]bool {
	of := map[rules.RuleID]bool{}
	for key := range overrides.all() {
		of[key.rule] = true
	}
	return of
}
