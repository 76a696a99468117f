// Package buckettest is the conformance suite of the enforce.Buckets port: what every store of
// buckets must do, run against the real thing. RunCredits is that of the enforce.Creditor port.
//
// The suite holds a store to three standards. The decision scripts in testdata are right in exact
// arithmetic. The contract's plain reading is the reference in reference.go, a dozen lines over
// enforce.Bucket: a store must agree with it bit for bit, so two stores that pass agree with each
// other. And on random histories, with edited limits and clocks that jump, levels stay within a
// millionth of a token of arithmetic on rationals.
//
// Time is always a parameter; no test waits.
package buckettest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// Store is a store under test, empty when it is handed over, with its clock in the test's hand.
type Store struct {
	// Take answers asks as enforce.Buckets does, at a time on the store's clock in microseconds
	// since the Unix epoch.
	Take func(now int64, asks []enforce.BucketCheck) error
	// Credit credits a bucket as enforce.Creditor does, at a time as above. Run does without it.
	Credit func(now int64, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before, after enforce.Bucket, err error)
	// CreditOnce does as enforce.Creditor does, likewise.
	CreditOnce func(now int64, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before, after enforce.Bucket, isRepeated bool, err error)
	// Settle settles buckets as enforce.Settler does, at a time as above.
	Settle func(now int64, edits []enforce.Edit) error
	// Newer replaces a bucket by a value that a newer release wrote, in a format which this one does not
	// know. It is nil if the store keeps nothing that another release reads.
	Newer func(key enforce.Key)
	// State returns all that the store holds, one entry per bucket. Two equal states are states
	// between which nothing was written that matters.
	State func() map[string]string
}

// Run runs the whole suite. It calls open for each test, from parallel tests.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Run("decision scripts", func(t *testing.T) { runScripts(t, open) })
	t.Run("contract", func(t *testing.T) { runContract(t, open) })
	t.Run("keys", func(t *testing.T) { runKeys(t, open) })
	t.Run("random histories agree with the reference bit for bit", func(t *testing.T) {
		t.Parallel()
		runHistories(t, open(t))
	})
	t.Run("random histories stay within a millionth of exact arithmetic", func(t *testing.T) {
		t.Parallel()
		runExact(t, open(t))
	})
	t.Run("a million takes stay within a millionth of exact arithmetic", func(t *testing.T) {
		t.Parallel()
		runMillion(t, open(t))
	})
}

// epoch is when the stories start: some day in 2027, in microseconds.
const epoch = int64(1_800_000_000_000_000)

// after returns the time a while after the start of a story.
func after(d time.Duration) int64 { return epoch + d.Microseconds() }

// limit returns a limit in force since a while after the start.
func limit(rate float64, burst int64, since time.Duration) enforce.Limit {
	return enforce.Limit{Rate: rate, Burst: burst, Since: after(since)}
}

// key returns the key of a rule's bucket for a subject, in tenant 1.
func key(rule rules.RuleID, subject string) enforce.Key {
	return enforce.Key{Tenant: 1, Rule: rule, Subject: subject}
}

// ask returns an ask of whole tokens.
func ask(tokens float64, tiers ...enforce.Tier) enforce.BucketCheck {
	return enforce.BucketCheck{Cost: enforce.Tokens(tokens * float64(enforce.Token)), Tiers: tiers}
}

func take(t testing.TB, s Store, now int64, checks ...enforce.BucketCheck) []enforce.BucketCheck {
	t.Helper()
	if err := s.Take(now, checks); err != nil {
		t.Fatalf("take %d asks: %v", len(checks), err)
	}
	return checks
}

// settle lets a limit reach a bucket that nobody asks for.
func settle(t testing.TB, s Store, now int64, bucket enforce.Key, limit enforce.Limit) {
	t.Helper()
	edit := enforce.Edit{Tenant: bucket.Tenant, Rule: bucket.Rule, Limit: func(subject string) (enforce.Limit, bool) {
		return limit, subject == bucket.Subject
	}}
	if err := s.Settle(now, []enforce.Edit{edit}); err != nil {
		t.Fatalf("settle: %v", err)
	}
}

// equalAnswers compares the answers to the same asks, bit for bit. Stamps are the store's own.
func equalAnswers(got, want []enforce.BucketCheck) error {
	for i := range want {
		for j := range want[i].Tiers {
			g, w := got[i].Tiers[j], want[i].Tiers[j]
			g.Bucket.Stamp, w.Bucket.Stamp = 0, 0
			if g != w {
				return fmt.Errorf("ask %d of cost %v, tier %d:\n got %+v\nwant %+v", i, want[i].Cost, j, g, w)
			}
		}
		if got[i].Allowed != want[i].Allowed {
			return fmt.Errorf("ask %d of cost %v: allowed %t, want %t", i, want[i].Cost, got[i].Allowed, want[i].Allowed)
		}
	}
	return nil
}

// clone copies asks with their tiers, so that two stores can answer the same ones.
func clone(checks []enforce.BucketCheck) []enforce.BucketCheck {
	copies := append([]enforce.BucketCheck(nil), checks...)
	for i := range copies {
		copies[i].Tiers = append([]enforce.Tier(nil), copies[i].Tiers...)
	}
	return copies
}

// wholly writes out a store's state for a failed test.
func wholly(state map[string]string) string {
	lines := make([]string, 0, len(state))
	for k, v := range state {
		lines = append(lines, fmt.Sprintf("%q: %q", k, v))
	}
	return strings.Join(lines, "\n")
}
