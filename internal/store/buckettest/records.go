package buckettest

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func recording(id string, tokens float64, tiers ...enforce.Tier) enforce.BucketCheck {
	check := checkOf(tokens, tiers...)
	check.Record, check.RecordID = true, enforce.RecordIDOf(id)
	return clone([]enforce.BucketCheck{check})[0]
}

func expectRepeated(t *testing.T, answers []enforce.BucketCheck, want ...bool) {
	t.Helper()
	for i := range want {
		if got := answers[i]; got.Repeated != want[i] || !got.Allowed || got.Exhausted {
			t.Errorf("record %d: repeated %t, allowed %t, exhausted %t; want %t, true, false", i, got.Repeated,
				got.Allowed, got.Exhausted, want[i])
		}
	}
}

func recordsOnce(t *testing.T, s Store) {
	hourly := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 100, Interval: time.Hour.Microseconds(), Since: epoch}
	bucket, other := enforce.Tier{Key: key(1, "42"), Limit: hourly}, enforce.Tier{Key: key(2, "42"), Limit: hourly}
	answers := take(t, s, after(0), recording("a", 3, bucket), recording("a", 3, bucket), recording("b", 3, bucket),
		recording("a", 50, other), recording("free", 0, bucket), recording("free", 1, bucket))
	expectRepeated(t, answers, false, true, false, true, false, true)
	expectCharged(t, answers[0], 3)
	expectCharged(t, answers[1], 0)
	expectTokens(t, answers[1], 97)
	expectTokens(t, answers[3], 100)
	expectTokens(t, answers[5], 94)
	// The id came at the start of a time slot, and is forgotten a slot later than two minutes.
	const last = 2*time.Minute + 30*time.Second
	answers = take(t, s, after(last)-1, recording("a", 3, bucket))
	expectRepeated(t, answers, true)
	expectTokens(t, answers[0], 94)
	answers = take(t, s, after(last), recording("a", 3, bucket), recording("a", 3, bucket))
	expectRepeated(t, answers, false, true)
	expectTokens(t, answers[1], 91)
	expectRepeated(t, take(t, s, after(last-time.Minute), recording("a", 3, bucket)), true) // the clock went back
}

func recordIDsAreOneTenants(t *testing.T, s Store) {
	bucket := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 100, 0)}
	neighbour := bucket
	neighbour.Key.Tenant++
	look := recording("a", 3, bucket)
	look.Look = true
	check := recording("a", 3, bucket)
	check.Record = false
	answers := take(t, s, after(0), look, recording("a", 3, bucket), check, recording("a", 3, neighbour),
		recording("a", 3, bucket), recording("a", 3, neighbour))
	expectRepeated(t, answers, false, false, false, false, true, true)
	expectTokens(t, answers[4], 94)
	expectTokens(t, answers[5], 97)
}

// RunRecordCap expects at most so many ids of a tenant, whatever a neighbour has; fill adds ids.
func RunRecordCap(t *testing.T, s Store, most int, fill func(now int64, tenant rules.TenantID, ids int)) {
	bucket := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 1000, 0)}
	neighbour := bucket
	neighbour.Key.Tenant++
	const few = 3
	fill(epoch, bucket.Key.Tenant, most-few)
	answers := take(t, s, after(0), recording("a", 1, bucket), recording("b", 1, bucket), recording("a", 1, bucket),
		recording("c", 1, bucket), recording("d", 1, bucket), recording("a", 1, bucket),
		recording("a", 1, neighbour), recording("", 1, bucket))
	expectRepeated(t, answers[:4], false, false, true, false)
	if one := answers[4]; one.Allowed || !one.Exhausted || one.Repeated {
		t.Errorf("one id too many: allowed %t, exhausted %t, repeated %t", one.Allowed, one.Exhausted, one.Repeated)
	}
	before, now := answers[3].Tiers[0].Bucket.Level, answers[4].Tiers[0].Bucket.Level
	if before != now {
		t.Errorf("one id too many changed the bucket from %v to %v", before, now)
	}
	expectCharged(t, answers[4], 0)
	expectRepeated(t, answers[5:], true, false)
	answers = take(t, s, after(3*time.Minute+time.Second), recording("a", 1, bucket), recording("d", 1, bucket))
	expectRepeated(t, answers, false, false)
}

type recordReference map[enforce.RecordID]int64

func (r recordReference) take(now int64, buckets reference, checks []enforce.BucketCheck) {
	for i := range checks {
		check := &checks[i]
		slot := now / enforce.RecordSlot
		if check.HasRecordID() && len(check.Tiers) > 0 {
			came, found := r[check.RecordID]
			check.Repeated = found && slot-came <= enforce.RecordSlots
		}
		buckets.take(now, checks[i:i+1])
		if check.AddsRecordID() && len(check.Tiers) > 0 {
			r[check.RecordID] = slot
		}
	}
}

// The clock never goes back, because a store may forget an expired id.
func runRecordHistories(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rules.TenantID(4_000_000+tenant.Add(1)), drawAnyLimit)
		ids := recordReference{}
		for range rapid.IntRange(1, 30).Draw(t, "takes") {
			h.now = h.latest + rapid.SampledFrom([]int64{
				0, 1, enforce.RecordSlot - 1, enforce.RecordSlot, enforce.RecordSlots * enforce.RecordSlot,
			}).Draw(t, "clock")
			h.latest = h.now
			checks := make([]enforce.BucketCheck, rapid.IntRange(1, 4).Draw(t, "checks"))
			for i := range checks {
				checks[i] = h.drawAsk(t)
				checks[i].Record = rapid.IntRange(0, 3).Draw(t, "record") > 0
				binary.LittleEndian.PutUint64(checks[i].RecordID[:], uint64(rapid.IntRange(0, 6).Draw(t, "id")))
			}
			want := clone(checks)
			ids.take(h.now, h.reference, want)
			if err := s.Take(h.now, checks); err != nil {
				t.Fatalf("take: %v", err)
			}
			if err := equalAnswers(checks, want); err != nil {
				t.Fatalf("%v after the start: %v", h.elapsed(), err)
			}
		}
	})
}
