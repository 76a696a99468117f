package pgbucket

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/buckettest"
)

const testTimeout = time.Minute

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "25") // each step is a transaction; scripts/soak.sh tries more
	goleak.VerifyTestMain(devdbtest.Main(m))
}

func open(t testing.TB, databaseURL string, budget time.Duration) *Store {
	t.Helper()
	s, err := Open(context.Background(), databaseURL, Options{Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func contents(t testing.TB, s *Store) map[string]string {
	t.Helper()
	rows, err := s.background.Query(context.WithoutCancel(t.Context()),
		"SELECT tenant_id, rule_id, subject, state FROM bucket")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	var tenant, rule int64
	var subject, state []byte
	if _, err := pgx.ForEachRow(rows, []any{&tenant, &rule, &subject, &state}, func() error {
		all[fmt.Sprintf("%d %d %q", tenant, rule, subject)] = string(state)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestConformance(t *testing.T) {
	t.Parallel()
	// Making and removing a database takes longer than most tests.
	free := make(chan string, 64)
	suite := func(t *testing.T) buckettest.Store {
		t.Helper()
		var databaseURL string
		select {
		case databaseURL = <-free:
		default:
			databaseURL = devdbtest.Postgres(t)
		}
		t.Cleanup(func() { free <- databaseURL }) // after the store is closed
		s := open(t, databaseURL, testTimeout)
		if _, err := s.background.Exec(t.Context(),
			"TRUNCATE bucket, bucket_credit, bucket_record, bucket_reservation"); err != nil {
			t.Fatal(err)
		}
		at := func(now int64) context.Context {
			s.stamp = func() int64 { return now }
			return context.Background()
		}
		return buckettest.Store{
			Take: func(now int64, checks []enforce.BucketCheck) error { return s.Take(at(now), checks) },
			Credit: func(now int64, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
				after enforce.Bucket, err error,
			) {
				return s.Credit(at(now), key, limit, amount)
			},
			CreditOnce: func(now int64, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
				after enforce.Bucket, isRepeated bool, err error,
			) {
				return s.CreditOnce(at(now), id, key, limit, amount)
			},
			SettleReservation: func(now int64, tenant rules.TenantID, id enforce.ReservationID,
				with enforce.Settlement,
			) (enforce.Settled, error) {
				return s.SettleReservation(at(now), tenant, id, with)
			},
			ApplyEdits: func(now int64, edits []enforce.Edit) error { return s.ApplyEdits(at(now), edits) },
			Newer: func(key enforce.Key) {
				k := storedKey(key)
				tag, err := s.background.Exec(context.Background(),
					`UPDATE bucket SET state = '\x02ffff' WHERE tenant_id = $1 AND rule_id = $2 AND subject = $3`,
					k.tenant, k.rule, []byte(k.subject))
				if err != nil || tag.RowsAffected() != 1 {
					t.Errorf("make %+v newer: %v, %v", key, tag, err)
				}
			},
			State: func() map[string]string { return contents(t, s) },
		}
	}
	buckettest.Run(t, suite)
	buckettest.RunCredits(t, suite)
	buckettest.RunReservations(t, suite)
}

func user(subject string, limit enforce.Limit) enforce.Tier {
	return enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: 1, Subject: subject}, Limit: limit}
}

func one(tiers ...enforce.Tier) []enforce.BucketCheck {
	return []enforce.BucketCheck{{Cost: enforce.Token, Tiers: tiers}}
}

func fourTiers(tenant rules.TenantID, subject int, limit enforce.Limit) enforce.BucketCheck {
	check := enforce.BucketCheck{Cost: enforce.Token, Tiers: make([]enforce.Tier, 4)}
	for i, subject := range []string{
		fmt.Sprint("user-", subject), fmt.Sprint("203.0.113.", subject),
		fmt.Sprint("/api/", subject%16), "",
	} {
		check.Tiers[i] = enforce.Tier{
			Key:   enforce.Key{Tenant: tenant, Rule: rules.RuleID(i), Subject: subject},
			Limit: limit,
		}
	}
	return check
}

func TestConcurrentTakesOfTwoProcessesNeverExceedTheBurst(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	stores := []*Store{open(t, databaseURL, testTimeout), open(t, databaseURL, testTimeout)}
	const now, burst = 1_800_000_000_000_000, 150
	for _, s := range stores {
		s.stamp = func() int64 { return now }
	}
	limit := enforce.Limit{Rate: 1, Burst: burst}
	large := enforce.Limit{Rate: 1, Burst: 1_000_000}
	var allowed, all [20]atomic.Int64
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			s := stores[worker%2]
			for i := range 20 * 25 {
				// New buckets come up in both stores at once, and the shared one is always locked.
				check := one(user(fmt.Sprint(i/25), limit), user("all", large))
				if err := s.Take(context.Background(), check); err != nil {
					t.Error(err)
					return
				}
				all[i/25].Add(1)
				if check[0].Allowed {
					allowed[i/25].Add(1)
				}
			}
		})
	}
	wg.Wait()
	sum := int64(0)
	for i := range allowed {
		sum += allowed[i].Load()
		if got := allowed[i].Load(); got != min(burst, all[i].Load()) {
			t.Errorf("bucket %d: %d of %d checks passed a burst of %d", i, got, all[i].Load(), burst)
		}
	}
	look := one(user("all", large))
	look[0].Look = true
	if err := stores[0].Take(context.Background(), look); err != nil {
		t.Fatal(err)
	}
	if got := look[0].Tiers[0].Bucket.Level.Micros; got != enforce.Tokens(1_000_000-sum)*enforce.Token {
		t.Errorf("the shared bucket holds %v after %d takes of one", got, sum)
	}
}
