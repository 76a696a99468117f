package enforce

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func match(tenant *snapshot.Tenant, check *Check, now time.Time, dst []rules.Match) []rules.Match {
	dst = tenant.Match(&check.Request, check.EffectivePlan, now, dst)
	if check.OwnLimit == nil {
		return dst
	}
	for i := range dst {
		if m := &dst[i]; isLimit(m) && isReplaceable(m.Rule) {
			m.Limit, m.IsOwn = *check.OwnLimit, true
		}
	}
	return dst
}

// isReplaceable reports whether a rule counts the requests of some descriptors and nothing else.
func isReplaceable(rule *rules.Rule) bool {
	namesDescriptor := func(s rules.Segment) bool {
		return s.Field == rules.FieldAttribute && s.Attribute == rules.DescriptorAttribute
	}
	return rule.Meter == "" && rule.Algorithm != rules.Concurrency &&
		slices.ContainsFunc(rule.Pattern.Segments(), namesDescriptor)
}

// OwnBuckets returns a user's stored buckets of own limits, except those with a digest as subject.
//
// Only keys have these limits, so OwnBuckets walks over the store, with edits that change nothing.
func OwnBuckets(
	ctx context.Context, store EditStore, tenant *snapshot.Tenant, userID string,
) (found []rules.Match, err error) {
	if !tenant.NamesAttribute(rules.DescriptorAttribute) {
		return nil, nil
	}
	isUsers := func(s rules.Segment) bool {
		return s.Field == rules.FieldUser && (s.Placeholder || s.Value == userID)
	}
	seen := map[Key]bool{} // Redis may return a key twice
	walk := rand.Text()
	var edits []Edit
	for rule := range tenant.Rules() {
		if !isReplaceable(rule) || !slices.ContainsFunc(rule.Pattern.Segments(), isUsers) {
			continue
		}
		key := Key{Tenant: tenant.Tenant.ID, Rule: -rule.ID}
		edits = append(edits, Edit{
			Tenant: key.Tenant, Rule: key.Rule, ID: walk,
			Limit: func(subject string) (Limit, bool) {
				key := key
				key.Subject = subject
				if m, ok := BucketOf(tenant, key, time.Now()); ok && m.Owner() == userID && !seen[key] {
					seen[key] = true
					found = append(found, m)
				}
				return Limit{}, false
			},
		})
	}
	if len(edits) > 0 {
		err = store.ApplyEdits(ctx, edits)
	}
	return found, err
}
