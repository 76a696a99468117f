package snapshot

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// recentEdit bounds the age of an edit that counts as a slowdown without an earlier Snapshot; later, another process
// has updated the buckets, or they are gone.
const recentEdit = time.Minute

// Expired returns the slowdowns by overrides that expired in an interval; it reads every override, 50 ms for a million.
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

func (t *Tenant) bucketLimit(rule *rules.Rule, user string, now int64) rules.Limit {
	if rule.Action != rules.ActionLimit {
		return rules.Limit{}
	}
	return t.limitFor(rule, user, now)
}

func (t *tenantDraft) noteRule(row *rules.Rule) {
	to := ruleBucketLimit(row)
	from, since := rules.Limit{}, int64(0)
	if was, ok := t.was.rules.get(row.ID); ok {
		from, since = ruleBucketLimit(was), rules.UnixMicro(was.InForceSince)
	} else if row.Version == 1 || t.draft.began-to.Since > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != since {
		t.slowed = append(t.slowed, rules.Slowdown{Tenant: t.tenant.ID, Rule: row.ID, From: since, To: to.Since})
	}
}

func ruleBucketLimit(r *rules.Rule) rules.Limit {
	if r.Action != rules.ActionLimit {
		return rules.Limit{}
	}
	return r.Limit()
}

func (t *tenantDraft) noteOverride(key overrideKey, next override) {
	if was, ok := t.was.overrides.get(key); ok && was == next {
		return
	}
	rule, ok := t.rules.get(key.rule)
	if !ok || rule.Action != rules.ActionLimit {
		return
	}
	to, from := next.effective(rule, rule.Limit(), t.draft.began), rules.Limit{}
	if was, ok := t.was.rules.get(key.rule); ok {
		from = t.was.bucketLimit(was, key.user, t.draft.began)
	} else if t.draft.began-rules.UnixMicro(rule.CreatedAt) < recentEdit.Microseconds() ||
		t.draft.began-to.Since > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != from.Since {
		t.slowed = append(t.slowed, rules.Slowdown{
			Tenant: t.tenant.ID, Rule: key.rule, User: key.user, From: from.Since, To: to.Since,
		})
	}
}

func (t *tenantDraft) noteStep(row *rules.Step, next step) {
	rule, ok := t.rules.get(row.RuleID)
	if !ok || !rule.Adapts() {
		return
	}
	to, from := next.effective(rule, rule.Limit(), t.draft.began), rules.Limit{}
	if was, ok := t.was.rules.get(row.RuleID); ok && was.Action == rules.ActionLimit {
		from = t.was.ownLimit(was, t.draft.began)
	} else if t.draft.began-rules.UnixMicro(row.SteppedAt) > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != from.Since {
		t.slowed = append(t.slowed, rules.Slowdown{
			Tenant: t.tenant.ID, Rule: rule.ID, From: from.Since, To: to.Since, IsStep: true,
		})
	}
}

// BucketOfUser returns the user's bucket of a rule, if the user has exactly one.
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

// CommonLimit returns the limit of all buckets of a rule, unless overrides have or had another.
func (t *Tenant) CommonLimit(id rules.RuleID, now time.Time) (limit rules.Limit, ok bool) {
	rule, found := t.rules.get(id)
	if !found || rule.Action != rules.ActionLimit {
		return rules.Limit{}, false
	}
	if rule.Pattern.SplitsByUser() && (t.overridden()[id] || t.overridden()[rule.CandidateFor]) {
		return rules.Limit{}, false
	}
	return t.ownLimit(rule, now.UnixMicro()), true
}

func rulesOf(overrides table[overrideKey, override]) map[rules.RuleID]bool {
	of := map[rules.RuleID]bool{}
	for key := range overrides.all() {
		of[key.rule] = true
	}
	return of
}
