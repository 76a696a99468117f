package pgbucket

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/buckettest"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

var soak = flag.Bool("soak", false, "let loads last longer, and try histories more often")

func repeats(n int) int {
	if *soak {
		return 50 * n
	}
	return n
}

func processes(t *testing.T, n int) []enforce.ReservingBuckets {
	t.Helper()
	databaseURL := devdbtest.Postgres(t)
	stores := make([]enforce.ReservingBuckets, n)
	for i := range stores {
		stores[i] = open(t, databaseURL, testTimeout)
	}
	return stores
}

func TestNoAlgorithmAdmitsMoreThanItPromises(t *testing.T) {
	t.Parallel()
	lasts := time.Second
	if *soak {
		lasts = 10 * time.Second
	}
	buckettest.RunPromises(t, processes(t, 4), 30, lasts)
}

func TestPlacesAndReservationsAreLinearizable(t *testing.T) {
	t.Parallel()
	buckettest.RunSlots(t, repeats(2), func(t *testing.T) []enforce.ReservingBuckets { return processes(t, 2) })
}

func TestConcurrentChecksThroughTheDenialCacheAreLinearizable(t *testing.T) {
	t.Parallel()
	t.Run("while PostgreSQL answers", func(t *testing.T) {
		t.Parallel()
		buckettest.RunChecks(t, repeats(2), func(t *testing.T) (enforce.ReservingBuckets, func()) {
			return processes(t, 1)[0], func() {}
		})
	})
	t.Run("while replies to a COMMIT are lost", func(t *testing.T) {
		t.Parallel()
		buckettest.RunChecks(t, repeats(2), func(t *testing.T) (enforce.ReservingBuckets, func()) {
			p, throughURL := throughProxy(t, devdbtest.Postgres(t))
			return open(t, throughURL, testTimeout), func() { p.loseCommit.Store(true) }
		})
	})
}

func TestLostRepliesHoldNoPlaces(t *testing.T) {
	t.Parallel()
	p, throughURL := throughProxy(t, devdbtest.Postgres(t))
	s, lose := open(t, throughURL, testTimeout), func() { p.loseCommit.Store(true) }
	buckettest.RunLostReplies(t, s, membucket.New(membucket.Options{}), lose)
	buckettest.RunLostSettlements(t, s, lose)

	ended := &settlement{tenant: 1, settled: enforce.Settled{Changes: []enforce.MeterCost{{Cost: enforce.Token}}}}
	if got := s.confirm(t.Context(), ended, []byte("what was read"), errors.New("no answer")); got.Found {
		t.Error("a reservation that has ended counts as settled")
	}
}

func TestOneReservationTooMany(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	began := time.Now()
	buckettest.RunOneReservationTooMany(t, s, func(open int) {
		if open == 0 {
			return
		}
		took := time.Since(began)
		var size int64
		if err := s.background.QueryRow(t.Context(),
			"SELECT pg_total_relation_size('bucket_reservation')").Scan(&size); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d reservations of one bucket take %d bytes each in PostgreSQL, and were opened in %v", open,
			size/int64(open), took)
		if each := size / int64(open); each > 600 {
			t.Errorf("a reservation takes %d bytes", each)
		}
	})
}

func TestATenantHasOnlySoManyIDsOfRecords(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	s.maxRecordIDs = 300
	take := func(now int64, checks []enforce.BucketCheck) error {
		s.stamp = func() int64 { return now }
		return s.Take(context.Background(), checks)
	}
	buckettest.RunRecordCap(t, buckettest.Store{Take: take}, int(s.maxRecordIDs),
		func(now int64, tenant rules.TenantID, ids int) {
			checks := make([]enforce.BucketCheck, ids)
			for i := range checks {
				checks[i] = one(user("42", enforce.Limit{Rate: 1, Burst: 1000}))[0]
				checks[i].Tiers[0].Key.Tenant = tenant
				checks[i].Record, checks[i].RecordID = true, enforce.RecordIDOf(fmt.Sprint("filled ", i))
			}
			if err := take(now, checks); err != nil {
				t.Fatal(err)
			}
		})
	last := s.stamp()
	s.stamp = func() int64 { return last + 10*enforce.RecordSlot }
	step := cleaned{table: "bucket_record", forgottenAt: "forgotten_at"}
	removed, err := s.cleanStep(t.Context(), &step)
	var left int
	if scanErr := s.background.QueryRow(t.Context(), "SELECT count(*) FROM bucket_record").Scan(&left); err != nil ||
		scanErr != nil || removed == 0 || left > 0 {
		t.Errorf("%d ids were removed and %d left: %v, %v", removed, left, err, scanErr)
	}
}

func TestARecordIsChargedOnceByTwoProcesses(t *testing.T) {
	t.Parallel()
	const ids = 50
	var charged atomic.Int64
	var callers sync.WaitGroup
	for _, s := range processes(t, 2) {
		for range 4 {
			callers.Go(func() {
				for i := range ids {
					check := one(user("42", enforce.Limit{Rate: 1e-6, Burst: 1000}))
					check[0].Record, check[0].RecordID = true, enforce.RecordIDOf(fmt.Sprint(i))
					if err := s.Take(context.Background(), check); err != nil {
						t.Errorf("record: %v", err)
					}
					if !check[0].Repeated {
						charged.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	if got := charged.Load(); got != ids {
		t.Errorf("%d records were charged, want each of %d once", got, ids)
	}
}

func reserving(tenant rules.TenantID, id int, life time.Duration) enforce.BucketCheck {
	check := one(user("42", enforce.Limit{Rate: 1, Burst: rules.MaxBurst}))[0]
	check.Tiers[0].Key.Tenant = tenant
	check.Reserve = &enforce.Reservation{
		ID: enforce.ReservationID{byte(id), byte(id >> 8), 1}, Life: life,
		Key: "a key",
	}
	check.Holder = check.Reserve.ID.Holder()
	return check
}

func countOpen(t *testing.T, s *Store, tenant rules.TenantID) (records int, counted int64) {
	t.Helper()
	if err := s.background.QueryRow(t.Context(), "SELECT count(*) FROM bucket_reservation WHERE tenant_id = $1",
		int64(tenant)).Scan(&records); err != nil {
		t.Fatal(err)
	}
	var state []byte
	if err := s.background.QueryRow(t.Context(),
		`SELECT coalesce((SELECT state FROM bucket WHERE tenant_id = $1 AND rule_id = 0), '')`,
		int64(tenant)).Scan(&state); err != nil {
		t.Fatal(err)
	}
	if len(state) > 0 {
		held, _, ok := enforce.ParseState(state)
		if !ok {
			t.Fatalf("the counter holds % x", state)
		}
		counted = enforce.MaxReservations - held.Level.Micros.Whole()
	}
	return records, counted
}

// The counter is set as if the tenant had opened as many as it may.
func TestEndedReservationsMakeRoom(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	now := int64(1_800_000_000_000_000)
	s.stamp = func() int64 { return now }
	mustTake(t, s, []enforce.BucketCheck{
		reserving(1, 1, time.Second), reserving(1, 2, time.Second),
		reserving(1, 3, time.Second),
	})
	full := enforce.NewState(counterLimit, now)
	full.Level.Micros = 0
	if _, err := s.background.Exec(t.Context(), "UPDATE bucket SET state = $1 WHERE rule_id = 0",
		full.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if denied := mustTake(t, s, []enforce.BucketCheck{reserving(1, 4, time.Second)})[0]; denied.Allowed ||
		!denied.Exhausted {
		t.Errorf("without room: allowed %t, exhausted %t", denied.Allowed, denied.Exhausted)
	}
	now += time.Second.Microseconds()
	var more []enforce.BucketCheck
	for id := range 4 {
		more = append(more, reserving(1, 4+id, time.Second))
	}
	for i, check := range mustTake(t, s, more) {
		if check.Allowed != (i < 3) {
			t.Errorf("with room for three, check %d: allowed %t", i+1, check.Allowed)
		}
	}
	if records, _ := countOpen(t, s, 1); records != 3 || s.ForgottenReservations() != 3 {
		t.Errorf("%d records, and %d were forgotten; want 3 and 3", records, s.ForgottenReservations())
	}
}

func TestEndedReservationsAreRemoved(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	now := int64(1_800_000_000_000_000)
	s.stamp = func() int64 { return now }
	var checks []enforce.BucketCheck
	const each = 2*closedAtOnce + 10
	for tenant := rules.TenantID(1); tenant <= 3; tenant++ {
		for id := range each {
			checks = append(checks, reserving(tenant, id, time.Second))
		}
	}
	mustTake(t, s, append(checks, reserving(2, each, time.Hour)))
	if err := s.forgetEnded(t.Context()); err != nil || s.ForgottenReservations() != 0 {
		t.Errorf("%d were removed before they ended, %v", s.ForgottenReservations(), err)
	}
	now += time.Second.Microseconds()
	if err := s.forgetEnded(t.Context()); err != nil || s.ForgottenReservations() != 3*each {
		t.Errorf("%d were removed, %v; want %d", s.ForgottenReservations(), err, 3*each)
	}
	for tenant, want := range map[rules.TenantID]int{1: 0, 2: 1, 3: 0} {
		if records, counted := countOpen(t, s, tenant); records != want || counted != int64(want) {
			t.Errorf("tenant %d has %d records, and %d are counted; want %d", tenant, records, counted, want)
		}
	}
	settled, err := s.SettleReservation(t.Context(), 2, reserving(2, each, 0).Reserve.ID, enforce.Settlement{})
	if _, counted := countOpen(t, s, 2); err != nil || !settled.Found || counted != 0 {
		t.Errorf("the last is settled as %+v, %v; %d are counted", settled, err, counted)
	}
	now += time.Minute.Microseconds()
	if removed, err := s.cleanStep(t.Context(), &cleaned{table: "bucket", forgottenAt: "full_at"}); err != nil ||
		removed != 3 {
		t.Errorf("%d counters were removed, %v; want those of three tenants", removed, err)
	}
}

func TestASettlementWithoutAnAnswerHappensOnce(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	p, throughURL := throughProxy(t, databaseURL)
	s, direct := open(t, throughURL, testTimeout), open(t, databaseURL, testTimeout)
	check := reserving(1, 1, time.Hour)
	check.Tiers[0].Limit, check.Cost = slow, 10*enforce.Token
	mustTake(t, s, []enforce.BucketCheck{check})
	with := enforce.Settlement{HasCost: true, Cost: 4 * enforce.Token, Key: "a key"}
	p.loseCommit.Store(true)
	if settled, err := s.SettleReservation(t.Context(), 1, check.Reserve.ID, with); err == nil {
		t.Errorf("settled as %+v though the reply was lost", settled)
	}
	if settled, err := s.SettleReservation(t.Context(), 1, check.Reserve.ID, with); err != nil || settled.Found {
		t.Errorf("again: %+v, %v", settled, err)
	}
	mustHold(t, direct, user("42", slow), 96)
}

func TestRecordsOfANewerReleaseAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	for record, isNewer := range map[string]bool{"\x03ff": true, "\x1f": true, "text": false, "\x01": false} {
		check := reserving(1, 1, time.Hour)
		mustTake(t, s, []enforce.BucketCheck{check})
		if _, err := s.background.Exec(t.Context(), "UPDATE bucket_reservation SET record = $1",
			[]byte(record)); err != nil {
			t.Fatal(err)
		}
		unknown := s.UnknownVersions()
		if settled, err := s.SettleReservation(t.Context(), 1, check.Reserve.ID, enforce.Settlement{}); err == nil {
			t.Errorf("%q is settled as %+v", record, settled)
		}
		if got := s.UnknownVersions() - unknown; got > 0 != isNewer {
			t.Errorf("%q counts as %d of a newer release", record, got)
		}
		if records, _ := countOpen(t, s, 1); records != 1 {
			t.Errorf("%q was removed", record)
		}
		if _, err := s.background.Exec(t.Context(), "DELETE FROM bucket_reservation"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFloodOfSettlementsLeavesOthersTheirTurn(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	ctx, stop := context.WithCancel(t.Context())
	flood := make(chan error, 64)
	for caller := range cap(flood) {
		go func() {
			var err error
			for n := 0; ctx.Err() == nil && err == nil; n++ {
				id := enforce.ReservationID{1, byte(caller), byte(n), byte(n >> 8)}
				_, err = s.SettleReservation(context.Background(), 1, id, enforce.Settlement{})
			}
			flood <- err
		}()
	}
	var slowest time.Duration
	for n := range 50 {
		check := reserving(2, n, time.Hour)
		began := time.Now()
		mustTake(t, s, []enforce.BucketCheck{check})
		settled, err := s.SettleReservation(ctx, 2, check.Reserve.ID, enforce.Settlement{})
		if err != nil || !settled.Found {
			t.Fatalf("settled as %+v, %v", settled, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	stop()
	for range cap(flood) {
		if err := <-flood; err != nil {
			t.Error(fmt.Errorf("the flood: %w", err))
		}
	}
	t.Logf("the slowest check and its settlement took %v beside %d callers that settle", slowest, cap(flood))
}
