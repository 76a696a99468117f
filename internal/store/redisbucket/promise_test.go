package redisbucket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/buckettest"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

func processes(t *testing.T, n int) []enforce.ReservingBuckets {
	t.Helper()
	server := devdbtest.Redis(t)
	stores := make([]enforce.ReservingBuckets, n)
	for i := range stores {
		stores[i] = New(client(t, server.URL(), testTimeout), testTimeout)
	}
	return stores
}

func TestNoAlgorithmAdmitsMoreThanItPromises(t *testing.T) {
	t.Parallel()
	lasts := time.Second
	if *soak {
		lasts = 10 * time.Second
	}
	buckettest.RunPromises(t, processes(t, 4), 300, lasts)
}

func TestPlacesAndReservationsAreLinearizable(t *testing.T) {
	t.Parallel()
	buckettest.RunSlots(t, repeats(3), func(t *testing.T) []enforce.ReservingBuckets { return processes(t, 2) })
}

func TestOneReservationTooMany(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	var empty int64
	buckettest.RunOneReservationTooMany(t, s, func(open int) {
		if open == 0 {
			empty = usedMemory(t, s)
			return
		}
		each := (usedMemory(t, s) - empty) / int64(open)
		t.Logf("%d reservations of one bucket take %d bytes each in Redis", open, each)
		if each > 600 {
			t.Errorf("a reservation takes %d bytes", each)
		}
	})
}

func TestATenantHasOnlySoManyIDsOfRecords(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	rdb := s.rdb
	buckettest.RunRecordCap(t, buckettest.Store{Take: func(now int64, checks []enforce.BucketCheck) error {
		return takeAt(s, now, checks)
	}}, enforce.MaxRecordIDs, func(now int64, tenant rules.TenantID, ids int) {
		counts := appendFloat(nil, float64(now/enforce.RecordSlot))
		for i := range enforce.RecordSlots + 1 { // some are counted in each slot
			n := ids / (enforce.RecordSlots + 1)
			if i == 0 {
				n = ids - n*enforce.RecordSlots
			}
			counts = binary.LittleEndian.AppendUint32(counts, uint32(n))
		}
		key := string(appendRecordIDsKey(nil, "", tenant))
		if err := rdb.Set(t.Context(), key, counts, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	})
	for key := range contents(t, rdb) {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%q expires in %v", key, ttl)
		}
	}
}

func TestIDsOfRecordsTakeLittleMemory(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	record := func(first byte, i, n int) (accepted int) {
		checks := make([]enforce.BucketCheck, n)
		for j := range checks {
			checks[j] = one(user("42", still))[0]
			checks[j].Record = true
			checks[j].RecordID = enforce.RecordID{first, byte(i), byte(i >> 8), byte(j), byte(j >> 8), 1}
		}
		for _, check := range mustTake(t, s, checks) {
			if !check.Exhausted {
				accepted++
			}
		}
		return accepted
	}
	const batch = 1000
	record(0, 0, 1)
	before, accepted := usedMemory(t, s), 0
	for i := range 10 {
		accepted += record(0, i, batch)
	}
	each := (usedMemory(t, s) - before) / int64(accepted)
	t.Logf("%d ids of one set were accepted, and take %d bytes each", accepted, each)
	if most := 2 * enforce.MaxRecordIDs / 256; accepted > most || each > 200 {
		t.Errorf("a set of %d ids of %d bytes each, want at most %d of 200", accepted, each, most)
	}
	for first := range 256 {
		if record(byte(first), 20, 1) != min(first, 1) {
			t.Errorf("set %d: one more was accepted, or refused", first)
		}
	}
}

func usedMemory(t testing.TB, s *Store) (bytes int64) {
	t.Helper()
	info, err := s.rdb.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "used_memory:%d", &bytes); err == nil {
			return bytes
		}
	}
	t.Fatalf("no memory in %s", info)
	return 0
}

func TestLostRepliesHoldNoPlaces(t *testing.T) {
	t.Parallel()
	p := newProxy(t, devdbtest.Redis(t).Addr())
	s := New(client(t, "redis://"+p.addr(), testTimeout), testTimeout)
	lose := func(after int64) func() {
		return func() {
			p.passes.Store(after)
			p.loseReply.Store(true)
		}
	}
	buckettest.RunLostReplies(t, s, membucket.New(membucket.Options{}), lose(0))
	buckettest.RunLostSettlements(t, s, lose(1)) // the first reply has the reservation

	check := one(user("ends", still))[0]
	check.Reserve = &enforce.Reservation{
		ID: enforce.ReservationID{7}, Life: time.Millisecond, Key: "a key", User: "ends",
		Costs: []enforce.MeterCost{{Cost: check.Cost}},
	}
	mustTake(t, s, []enforce.BucketCheck{check})
	var until time.Time
	eventually(t, "the reservation to end", testTimeout, func() bool {
		now, end, err := s.stored(1, check.Reserve.ID)
		until = end
		return err == nil && now == ""
	})
	settled := enforce.Settled{Changes: []enforce.MeterCost{{Cost: enforce.Token}}}
	if s.confirm(1, check.Reserve.ID, "as it was", until, settled, errors.New("no answer")).Found {
		t.Error("a reservation that has ended counts as settled")
	}
}

func TestRecordsOfANewerReleaseAreLeftAlone(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	for record, isNewer := range map[string]bool{"\x03ff": true, "\x1f": true, "text": false, "\x01": false} {
		check := one(user("42", still))[0]
		check.Reserve = &enforce.Reservation{ID: enforce.ReservationID{1}, Life: time.Hour, Key: "a key"}
		mustTake(t, s, []enforce.BucketCheck{check})
		key := string(appendReservationKey(nil, "", check.Tiers[0].Key.Tenant, check.Reserve.ID))
		if err := s.rdb.Set(t.Context(), key, record, 0).Err(); err != nil {
			t.Fatal(err)
		}
		unknown := s.UnknownVersions()
		if settled, err := s.SettleReservation(t.Context(), check.Tiers[0].Key.Tenant, check.Reserve.ID,
			enforce.Settlement{}); err == nil {
			t.Errorf("%q is settled as %+v", record, settled)
		}
		if got := s.UnknownVersions() - unknown; got > 0 != isNewer {
			t.Errorf("%q counts as %d of a newer release", record, got)
		}
		if now, err := s.rdb.Get(t.Context(), key).Result(); err != nil || now != record {
			t.Errorf("%q became %q, %v", record, now, err)
		}
	}
}
