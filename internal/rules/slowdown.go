package rules

import (
	"fmt"
	"time"
)

// recentEdit is how long after an edit a process that knows nothing of the time before it takes it for one that
// slows. Later, another process has settled the buckets, or they are gone.
const recentEdit = time.Minute

// Slowdown says that buckets fill later than before. The stores must be told before they forget buckets that
// nobody asks for: see Limit.FillsLaterThan.
type Slowdown struct {
	Tenant TenantID
	Rule   RuleID
	// User is whose buckets they are, after a change to an override; "" for all of the rule's.
	User string
	// From and To are since when the limit before and the limit now were in force; From is 0 if it is not known.
	From, To int64
}

// ID tells the slowdown from others of the rule, in all processes alike. Which limit was there before depends on when a
// process read, so it counts only where it was the later one, which the database has lost.
func (s Slowdown) ID() string {
	if s.From > s.To {
		return fmt.Sprintf("%d-%d:%s", s.From, s.To, s.User)
	}
	return fmt.Sprintf("%d:%s", s.To, s.User)
}

// Expired returns the slowdowns by overrides that expired after one moment and not after another. It looks at
// every override: 50 ms for a million.
func (s *Snapshot) Expired(after, until time.Time) []Slowdown {
	var slowed []Slowdown
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
			if limit := t.bucketLimit(rule, key.user, to); limit.FillsLaterThan(o.limit) {
				slowed = append(slowed, Slowdown{id, key.rule, key.user, o.limit.Since, limit.Since})
			}
		}
	}
	return slowed
}

// bucketLimit returns the limit of a user's buckets, which is zero if the rule has none.
func (t *TenantRules) bucketLimit(rule *Rule, user string, now int64) Limit {
	if rule.Action != ActionLimit {
		return Limit{}
	}
	return t.limitFor(rule, user, now)
}

// noteRule notes a rule's row if its buckets fill later than before.
func (t *tenantDraft) noteRule(row *Rule) {
	to := row.bucketLimit()
	from, since := Limit{}, int64(0)
	if was, ok := t.was.rules.get(row.ID); ok {
		from, since = was.bucketLimit(), unixMicro(was.InForceSince)
	} else if row.Version == 1 || t.now-to.Since > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != since {
		t.slowed = append(t.slowed, Slowdown{t.tenant.ID, row.ID, "", since, to.Since})
	}
}

// bucketLimit returns the rule's own limit, which is zero if it has none.
func (r *Rule) bucketLimit() Limit {
	if r.Action != ActionLimit {
		return Limit{}
	}
	return r.ownLimit()
}

// noteOverride notes an override's row if the user's buckets fill later than before. Rules come before overrides.
func (t *tenantDraft) noteOverride(key overrideKey, next override) {
	if was, ok := t.was.overrides.get(key); ok && was == next {
		return
	}
	rule, ok := t.rules.get(key.rule)
	if !ok || rule.Action != ActionLimit {
		return
	}
	to, from := next.effective(rule, t.now), Limit{}
	if was, ok := t.was.rules.get(key.rule); ok {
		from = t.was.bucketLimit(was, key.user, t.now)
	} else if t.now-unixMicro(rule.CreatedAt) < recentEdit.Microseconds() || t.now-to.Since > recentEdit.Microseconds() {
		return
	}
	if to.FillsLaterThan(from) && to.Since != from.Since {
		t.slowed = append(t.slowed, Slowdown{t.tenant.ID, key.rule, key.user, from.Since, to.Since})
	}
}

// BucketOfUser returns the one bucket of a rule that is a user's, and its limit; ok is false if there is no such
// rule, or if it has other buckets of the user, or none.
func (t *TenantRules) BucketOfUser(id RuleID, user string, now time.Time) (m Match, ok bool) {
	rule, found := t.rules.get(id)
	if !found || rule.Action != ActionLimit {
		return Match{}, false
	}
	subject, ok := rule.Pattern.subjectOfUser(user)
	if !ok {
		return Match{}, false
	}
	return t.match(rule, subject, user, now), true
}

// CommonLimit returns the limit of all buckets of a rule; ok is false if there is no such rule, or if users have
// have or had overrides for it.
func (t *TenantRules) CommonLimit(id RuleID) (limit Limit, ok bool) {
	rule, found := t.rules.get(id)
	if !found || rule.Action != ActionLimit || rule.Pattern.splitsByUser() && t.overridden()[id] {
		return Limit{}, false
	}
	return rule.ownLimit(), true
}

// rulesOf returns the rules that overrides are for: 50 ms for a million.
func rulesOf(overrides table[overrideKey, override]) map[RuleID]bool {
	of := map[RuleID]bool{}
	for key := range overrides.all() {
		of[key.rule] = true
	}
	return of
}

func (p Pattern) splitsByUser() bool {
	for i := range p.segments {
		if p.segments[i].Field == FieldUser && p.segments[i].Placeholder {
			return true
		}
	}
	return false
}
