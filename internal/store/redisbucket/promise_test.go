package redisbucket

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
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

func usedMemory(t *testing.T, s *Store) (bytes int64) {
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
	buckettest.RunLostReplies(t, s, membucket.New(membucket.Options{}), func() { p.loseReply.Store(true) })
}

// TestRecordsOfANewerReleaseAreLeftAlone has records that this release does not know, and some that nobody could have
// written.
func TestRecordsOfANewerReleaseAreLeftAlone(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	for record, isNewer := range map[string]bool{"\x02ff": true, "\x1f": true, "text": false, "\x01": false} {
		check := one(user("42", still))[0]
		check.Reserve = &enforce.Reservation{ID: enforce.ReservationID{1}, Life: time.Hour, Key: "a key"}
		mustTake(t, s, []enforce.BucketCheck{check})
		key := string(appendRecordKey(nil, "", check.Tiers[0].Key.Tenant, check.Reserve.ID))
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
