// Package buckettest is the conformance suite of stores of buckets. The scripts in testdata are right in exact
// arithmetic. Stores agree bit for bit with reference.go, a dozen lines over enforce.Bucket. Random histories stay
// within a millionth of a token of rational arithmetic, and of each algorithm's definition; see oracle.go. Time is a
// parameter, so no test waits.
package buckettest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// Store is an empty store under test, whose clock the test sets.
type Store struct {
	Take   func(now int64, asks []enforce.BucketCheck) error
	Credit func(now int64, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
		after enforce.Bucket, err error)
	CreditOnce func(now int64, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
		after enforce.Bucket, isRepeated bool, err error)
	SettleReservation func(now int64, tenant rules.TenantID, id enforce.ReservationID,
		with enforce.Settlement) (enforce.Settled, error)
	Lease      func(now int64, leases []enforce.Lease) error
	ApplyEdits func(now int64, edits []enforce.Edit) error
	// Newer writes a newer release's format; nil if releases do not share the store.
	Newer func(key enforce.Key)
	// State has an entry per bucket; equal states mean that nothing of importance was written.
	State func() map[string]string
}

// Run runs the suite of enforce.Buckets; each parallel test calls open once.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Run("decision scripts", func(t *testing.T) { runScripts(t, open) })
	t.Run("contract", func(t *testing.T) { runContract(t, open) })
	t.Run("keys", func(t *testing.T) { runKeys(t, open) })
	runEach(t, open, map[string]func(*testing.T, Store){
		"random histories agree with the reference bit for bit":                     runHistories,
		"random histories with ids of records agree with the reference bit for bit": runRecordHistories,
		"random histories stay within a millionth of exact arithmetic":              runExact,
		"random histories of each algorithm agree with a list of what was admitted": runOracle,
		"a million takes stay within a millionth of exact arithmetic":               runMillion,
	})
}

func runEach(t *testing.T, open func(t *testing.T) Store, tests map[string]func(*testing.T, Store)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

const epoch = int64(1_800_000_000_000_000)

func after(d time.Duration) int64 { return epoch + d.Microseconds() }

func limit(rate float64, burst int64, since time.Duration) enforce.Limit {
	return enforce.Limit{Rate: rate, Burst: burst, Since: after(since)}
}

func key(rule rules.RuleID, subject string) enforce.Key {
	return enforce.Key{Tenant: 1, Rule: rule, Subject: subject}
}

func checkOf(tokens float64, tiers ...enforce.Tier) enforce.BucketCheck {
	return enforce.BucketCheck{Cost: enforce.Tokens(tokens * float64(enforce.Token)), Tiers: tiers}
}

func take(t testing.TB, s Store, now int64, checks ...enforce.BucketCheck) []enforce.BucketCheck {
	t.Helper()
	if err := s.Take(now, checks); err != nil {
		t.Fatalf("take %d checks: %v", len(checks), err)
	}
	return checks
}

func applyEdit(t testing.TB, s Store, now int64, bucket enforce.Key, limit enforce.Limit) {
	t.Helper()
	edit := enforce.Edit{Tenant: bucket.Tenant, Rule: bucket.Rule, Limit: func(subject string) (enforce.Limit, bool) {
		return limit, subject == bucket.Subject
	}}
	if err := s.ApplyEdits(now, []enforce.Edit{edit}); err != nil {
		t.Fatalf("apply an edit: %v", err)
	}
}

func equalAnswers(got, want []enforce.BucketCheck) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d answers to %d checks", len(got), len(want))
	}
	for i := range want {
		for j := range want[i].Tiers {
			g, w := got[i].Tiers[j], want[i].Tiers[j]
			if g != w {
				return fmt.Errorf("check %d of cost %v, tier %d:\n got %+v\nwant %+v", i, want[i].Cost, j, g, w)
			}
		}
		if got[i].Allowed != want[i].Allowed {
			return fmt.Errorf("check %d of cost %v: allowed %t, want %t", i, want[i].Cost, got[i].Allowed,
				want[i].Allowed)
		}
		if got[i].Repeated != want[i].Repeated || got[i].Exhausted != want[i].Exhausted {
			return fmt.Errorf("check %d: repeated %t, exhausted %t; want %t, %t", i, got[i].Repeated, got[i].Exhausted,
				want[i].Repeated, want[i].Exhausted)
		}
	}
	return nil
}

func clone(checks []enforce.BucketCheck) []enforce.BucketCheck {
	copies := append([]enforce.BucketCheck(nil), checks...)
	for i := range copies {
		copies[i].Tiers = append([]enforce.Tier(nil), copies[i].Tiers...)
	}
	return copies
}

func wholly(state map[string]string) string {
	lines := make([]string, 0, len(state))
	for k, v := range state {
		lines = append(lines, fmt.Sprintf("%q: %q", k, v))
	}
	return strings.Join(lines, "\n")
}
