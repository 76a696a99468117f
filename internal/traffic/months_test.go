package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func (s *shelf) counted(tenant rules.TenantID) map[string]traffic.UserMonth {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[string]traffic.UserMonth{}
	for _, c := range s.months {
		if c.Tenant != tenant {
			continue
		}
		key := c.Month.Format("2006-01 ") + c.User
		if c.Meter != "" {
			key += " " + string(c.Meter)
		}
		sum := sums[key]
		sum.Allowed += c.Allowed
		sum.Denied += c.Denied
		sum.Cost += c.Cost
		sum.CostParts += c.CostParts
		sums[key] = sum
	}
	return sums
}

func TestChecksAreCountedByUserAndMonthOfUTC(t *testing.T) {
	t.Parallel()
	sink := &shelf{}
	r := traffic.NewRecorder(sink, traffic.Options{})
	midnight := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for range 3 {
		r.Record(check("42", midnight.Add(-time.Millisecond)))
	}
	for _, cost := range []int64{2_500_000, 1} {
		c := check("42", midnight)
		c.Cost = cost
		r.Record(c)
	}
	denied := check("42", midnight)
	denied.Denied = true
	r.Record(denied)
	r.Record(check("", midnight))
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Record(check("42", midnight)) // in a later batch
	sink.err = errors.New("away")
	if err := r.Flush(t.Context()); err == nil {
		t.Error("the sink is away, and Flush succeeds")
	}
	sink.err = nil
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := sink.counted(1)
	want := map[string]traffic.UserMonth{
		"2026-11 42": {Allowed: 3, Cost: 3}, "2026-12 42": {Allowed: 3, Denied: 1, Cost: 3, CostParts: 500_001},
		"2026-12 ": {Allowed: 1, Cost: 1},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the counts are %v, want %v", got, want)
	}
}

func TestWhatCountedMetersCostIsCounted(t *testing.T) {
	t.Parallel()
	sink := &shelf{}
	r := traffic.NewRecorder(sink, traffic.Options{})
	for _, kind := range []string{"check", "denied", "record", "reservation"} {
		c := check("42", noon)
		c.Denied, c.Record, c.Reserves = kind == "denied", kind == "record", kind == "reservation"
		if c.Record {
			c.Cost = 0
		}
		c.Costs = []traffic.Cost{
			{Meter: "pages", Amount: 7},
			{Meter: "tokens", Amount: 600_000, IsCounted: true},
			{Meter: "usd", Amount: 12_500_000, IsCounted: true},
		}
		r.Record(c)
	}
	r.Record(check("42", noon))
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := sink.counted(1)
	want := map[string]traffic.UserMonth{
		"2026-11 42":        {Allowed: 4, Denied: 1, Cost: 3},
		"2026-11 42 tokens": {Allowed: 3, Denied: 1, Cost: 1, CostParts: 800_000},
		"2026-11 42 usd":    {Allowed: 3, Denied: 1, Cost: 37, CostParts: 500_000},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the counts are %v, want %v", got, want)
	}
}

func TestATenantWithManyUsersLeavesRoomForTheCountsOfOthers(t *testing.T) {
	t.Parallel()
	sink := &shelf{err: errors.New("away")}
	r := traffic.NewRecorder(sink, traffic.Options{})
	for i := range 40_000 {
		c := check(fmt.Sprint("user-", i), noon)
		c.Tenant = 2
		r.Record(c)
		if i%1000 == 0 { // frees the buffers
			_ = r.Flush(t.Context())
		}
	}
	_ = r.Flush(t.Context())
	for i := range 1000 {
		r.Record(check(fmt.Sprint("user-", i), noon))
	}
	sink.err = nil
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(sink.counted(1)); n != 1000 {
		t.Errorf("%d users of the small tenant were counted, want 1000", n)
	}
	n, stats := len(sink.counted(2)), r.Stats()
	if n < 10_000 || n > 20_000 {
		t.Errorf("%d users of the large tenant were counted, want about half of the places", n)
	}
	if stats.DroppedCounts+int64(n)+stats.Dropped != 40_000 {
		t.Errorf("%d counts were dropped beside %d of 40,000, and %d checks", stats.DroppedCounts, n, stats.Dropped)
	}
}

type picky struct {
	shelf
	refused map[string]bool
}

func (s *picky) WriteUserMonths(ctx context.Context, writer string, number int64, counts []traffic.UserMonth) error {
	for _, c := range counts {
		if s.refused[c.User] {
			return traffic.ErrRefused
		}
	}
	return s.shelf.WriteUserMonths(ctx, writer, number, counts)
}

func TestARefusedUserIsMissingAloneAndCounted(t *testing.T) {
	t.Parallel()
	sink := &picky{refused: map[string]bool{"user-3": true, "user-40": true}}
	r := traffic.NewRecorder(sink, traffic.Options{})
	for i := range 100 {
		r.Record(check(fmt.Sprint("user-", i), noon))
	}
	sink.err = errors.New("away")
	if err := r.Flush(t.Context()); err == nil {
		t.Error("the sink is away, and Flush succeeds")
	}
	sink.err = nil
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, lost := len(sink.counted(1)), r.Stats().LostUsers; n != 98 || lost != 2 {
		t.Errorf("%d users were counted and %d lost, want 98 and 2", n, lost)
	}
	r.Record(check("user-3", noon))
	r.Record(check("user-4", noon))
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	month := noon.Format("2006-01 ")
	if got := sink.counted(1)[month+"user-4"].Allowed; got != 2 {
		t.Errorf("another user was counted %d times, want 2", got)
	}
	if lost := r.Stats().LostUsers; lost != 3 {
		t.Errorf("%d counts are lost, want 3", lost)
	}
}
