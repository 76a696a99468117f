package violations_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (l *ledger) callersOf(tenant rules.TenantID, slot time.Time) map[string]int64 {
	found := map[string]int64{}
	for _, c := range l.callers {
		if c.Tenant == tenant && c.Dimension != "" && c.Slot.Equal(slot) {
			found[string(c.Dimension)+" "+c.Value] += c.Checks
		}
	}
	return found
}

// wantChecks allows eight standard deviations of a count that one in four checks adds four to.
func wantChecks(t *testing.T, found map[string]int64, caller string, sent int64) {
	t.Helper()
	if off, most := math.Abs(float64(found[caller]-sent)), 8*math.Sqrt(3*float64(sent)); off > most {
		t.Errorf("%d checks of %s are written, want %d ± %.0f", found[caller], caller, sent, most)
	}
}

func TestBusyCallersAreWritten(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	busy, small := allowed(1, "busy", "203.0.113.9"), allowed(1, "small", "192.0.2.9")
	many := allowed(1, "batches", "2001:db8:1:2::3")
	many.Times = 1000
	for i := range 40_000 {
		at := noon.Add(time.Duration(i) * time.Millisecond / 5)
		r.Record(at, busy)
		if i%4 == 0 {
			r.Record(at, allowed(1, "", fmt.Sprintf("198.51.100.%d", i%251))) // any of many addresses
		}
		if i%400 == 0 { // less than 2 %
			r.Record(at, small)
		}
		if i%4000 == 0 {
			r.Record(at, many)
		}
		r.Record(at, denied(1, "denied"))
	}
	few := allowed(2, "few", "203.0.113.9") // the only caller, who makes less than 10 in 10 s
	for range 2 {
		r.Record(noon, few)
	}
	r.Record(noon.Add(time.Minute), busy)
	flush(t, r)
	found := l.callersOf(1, noon)
	wantChecks(t, found, "user busy", 40_000)
	wantChecks(t, found, "user denied", 40_000)
	wantChecks(t, found, "network 203.0.113.0/24", 40_000)
	wantChecks(t, found, "network 198.51.100.0/24", 10_000)
	wantChecks(t, map[string]int64{"all": l.callers[0].Checks}, "all", 40_000+10_000+100+10_000+40_000)
	if got := found["user batches"]; got != 10_000 || found["network 2001:db8:1::/48"] != 10_000 {
		t.Errorf("%d checks of batches are written, want exactly 10,000", got)
	}
	for _, c := range l.callers {
		if c.Dimension != "" && c.Value == "" || c.Value == "small" || c.Value == "few" || c.Value == "192.0.2.0/24" {
			t.Errorf("a small caller is written: %+v", c)
		}
	}
}

func TestAtMostEightCallersOfADimensionAreWritten(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	for user := range 20 {
		check := allowed(1, fmt.Sprint(user), fmt.Sprintf("203.0.%d.9", user))
		check.Times = int64(1000 + user)
		r.Record(noon, check)
	}
	flush(t, r)
	found := l.callersOf(1, noon)
	if len(found) != 16 || found["user 19"] != 1019 || found["user 12"] != 1012 ||
		found["network 203.0.19.0/24"] != 1019 {
		t.Errorf("of 20 callers %v are written, want the 8 with most checks by each dimension", found)
	}
}

func TestAGreedyTenantTakesNoCallersFromOthers(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{MaxBytes: 4 << 20})
	const greedy, ours = 1, 5 // of one shard
	for i := range 100_000 {
		many := allowed(greedy, fmt.Sprint("invented ", i), fmt.Sprintf("203.%d.%d.9", i>>8&0xff, i&0xff))
		many.Times = 8
		r.Record(noon, many)
	}
	for i := range 1000 {
		check := allowed(ours, fmt.Sprint(i%5), "192.0.2.9")
		check.Times = 8
		r.Record(noon, check)
	}
	flush(t, r)
	found := l.callersOf(ours, noon)
	if len(found) != 6 || found["user 3"] != 1600 || found["network 192.0.2.0/24"] != 8000 {
		t.Errorf("beside a greedy tenant %v are written", found)
	}
	if got := l.callersOf(greedy, noon); len(got) > 8 {
		t.Errorf("of the greedy tenant %d callers are written", len(got))
	}
}

func TestCallersSurviveFailedWrites(t *testing.T) {
	t.Parallel()
	l := newLedger()
	away := true
	l.fail = func(b *violations.Batch) (before, after error) {
		switch {
		case away && b.Number%2 == 0:
			return errAway, nil
		case away:
			return nil, errAway // it was written
		}
		return nil, nil
	}
	r := violations.NewRecorder(l, violations.Options{})
	check := allowed(1, "42", "203.0.113.9")
	check.Times = 100
	for minute := range 10 {
		for range 10 {
			r.Record(noon.Add(time.Duration(minute)*time.Minute), check)
		}
		if r.Flush(t.Context()) == nil {
			t.Fatal("the sink is not away")
		}
	}
	away = false
	flush(t, r)
	flush(t, r) // what came after the first batches
	if len(l.callers) != 30 {
		t.Errorf("%d callers are written, want 10 each, and 10 of all", len(l.callers))
	}
	for minute := range 10 {
		at := noon.Add(time.Duration(minute) * time.Minute)
		if got := l.callersOf(1, at); got["user 42"] != 1000 || got["network 203.0.113.0/24"] != 1000 {
			t.Errorf("in minute %d %v are written, want 1000 each", minute, got)
		}
	}
}

func TestBusyTimeHasEnded(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]time.Duration{
		0: -10 * time.Second, time.Second: -10 * time.Second, 2 * time.Second: 0, 11 * time.Second: 0,
	} {
		since, until := violations.BusyTime(noon.Add(after))
		if !until.Equal(noon.Add(want)) || until.Sub(since) != violations.PresentTime {
			t.Errorf("%s after noon the time is %s to %s", after, since, until)
		}
	}
}
