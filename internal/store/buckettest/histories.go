package buckettest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// idle is how long a full bucket must be kept; a forgotten one has the caller's limit, even an older or larger one.
const idle = 10 * time.Second

func drawLimit(t *rapid.T, since int64) enforce.Limit {
	rate := rapid.OneOf(
		rapid.Float64Range(rules.MinRate, rules.MaxRate),
		rapid.Map(rapid.Float64Range(math.Log(rules.MinRate), math.Log(rules.MaxRate)), math.Exp),
		rapid.SampledFrom([]float64{rules.MinRate, 0.1, 0.3, 1.0 / 3, 1000.0 / 86400, 1, 10, 100.7, rules.MaxRate}),
	).Draw(t, "rate")
	burst := rapid.OneOf(
		rapid.Int64Range(1, 20),
		rapid.Int64Range(1, rules.MaxBurst),
		rapid.Just(int64(rules.MaxBurst)),
	).Draw(t, "burst")
	return enforce.Limit{Rate: min(max(rate, rules.MinRate), rules.MaxRate), Burst: burst, Since: since}
}

// drawAnyLimit leaves out calendars, whose windows a store may know less far than the reference.
func drawAnyLimit(t *rapid.T, since int64) enforce.Limit {
	limit := drawLimit(t, since)
	const second = int64(time.Second / time.Microsecond)
	interval := second * rapid.SampledFrom([]int64{1, 2, 10, 60, 3600, 86400}).Draw(t, "interval")
	limit.Kind = rapid.SampledFrom([]rules.Kind{
		rules.KindTokenBucket, rules.KindTokenBucket, rules.KindLeakyBucket, rules.KindFixedWindow,
		rules.KindSlidingWindow,
		rules.KindSlidingWindowLog, rules.KindConcurrency,
	}).Draw(t, "kind")
	switch limit.Kind {
	case rules.KindTokenBucket:
		limit.Interval = rapid.SampledFrom([]int64{0, interval}).Draw(t, "steps")
	case rules.KindLeakyBucket:
	case rules.KindSlidingWindowLog, rules.KindConcurrency:
		limit.Rate, limit.Interval = 0, interval
		limit.Burst = rapid.OneOf(rapid.Int64Range(1, 8), rapid.Int64Range(1, rules.MaxListed)).Draw(t, "listed")
	default:
		limit.Rate, limit.Interval = 0, interval
	}
	return limit
}

func drawCost(t *rapid.T, limit enforce.Limit, level enforce.Level) enforce.Tokens {
	burst := enforce.Tokens(limit.Burst) * enforce.Token
	return max(0, rapid.OneOf(
		rapid.SampledFrom([]enforce.Tokens{
			0, 1, enforce.Token, burst, burst + 1, 2*burst + 1,
			level.Micros - 1, level.Micros, level.Micros + 1,
		}),
		rapid.Map(rapid.Int64Range(0, int64(burst)),
			func(micros int64) enforce.Tokens { return enforce.Tokens(micros) }),
	).Draw(t, "cost"))
}

func drawStep(t *rapid.T, limit enforce.Limit) int64 {
	toFull := min(limit.TimeToFull().Microseconds(), 1e13)
	return rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(0, 1000),
		rapid.Int64Range(0, max(1, toFull)),
		rapid.Int64Range(0, int64(400*24*time.Hour/time.Microsecond)),
		rapid.Int64Range(-int64(time.Hour/time.Microsecond), 0),
	).Draw(t, "clock")
}

type history struct {
	now, latest int64 // latest is the highest that now ever was
	tenant      rules.TenantID
	limits      [4][2]enforce.Limit // of each rule, the present limit and the one before; the first is that of runExact
	subjects    int                 // drawn so far
	holders     uint64
	draw        func(t *rapid.T, since int64) enforce.Limit
	reference   reference
	unsure      map[enforce.Key]bool // buckets that were settled, unless the store had forgotten them before
}

func newHistory(t *rapid.T, tenant rules.TenantID, draw func(t *rapid.T, since int64) enforce.Limit) *history {
	h := &history{
		now: epoch, latest: epoch, tenant: tenant, reference: reference{}, unsure: map[enforce.Key]bool{},
		draw: draw,
	}
	for rule := range h.limits {
		l := draw(t, epoch)
		h.limits[rule] = [2]enforce.Limit{l, l}
	}
	return h
}

func (h *history) elapsed() time.Duration { return time.Duration(h.now-epoch) * time.Microsecond }

func (h *history) advance(t *rapid.T, s Store) {
	h.now = max(0, h.now+drawStep(t, h.limits[1][0]))
	h.latest = max(h.latest, h.now)
	rule := rules.RuleID(rapid.IntRange(1, len(h.limits)-1).Draw(t, "rule"))
	switch rapid.IntRange(0, 9).Draw(t, "edit") {
	case 0, 1:
		present := h.limits[rule][0]
		since := max(present.Since+1, h.limits[rule][1].Since+1,
			h.now+rapid.Int64Range(-2_000_000, 2_000_000).Draw(t, "skew"))
		h.edit(t, s, rule, h.draw(t, since))
	case 2: // a failover of the database loses the latest edit, and some processes still hold it
		h.edit(t, s, rule, h.limits[rule][1])
	}
}

func (h *history) edit(t *rapid.T, s Store, rule rules.RuleID, limit enforce.Limit) {
	former := h.limits[rule][0]
	h.limits[rule] = [2]enforce.Limit{limit, former}
	if !limit.FillsLaterThan(former) {
		return
	}
	edit := enforce.Edit{Tenant: h.tenant, Rule: rule, ReadAt: h.drawReadAt(t, limit)}
	edit.Limit = func(string) (enforce.Limit, bool) { return limit, true }
	for key := range h.reference {
		if key.Rule != rule {
			continue
		}
		if h.mayBeGone(key) {
			h.unsure[key] = true
		} else {
			h.reference.take(h.now, []enforce.BucketCheck{{
				ReadAt: edit.ReadAt,
				Tiers:  []enforce.Tier{{Key: key, Limit: limit}},
			}})
		}
	}
	if err := s.ApplyEdits(h.now, []enforce.Edit{edit}); err != nil {
		t.Fatalf("settle: %v", err)
	}
}

func (h *history) drawReadAt(t *rapid.T, limit enforce.Limit) int64 {
	return max(0, rapid.SampledFrom([]int64{
		0, h.now, limit.Since + enforce.CommitTime,
		limit.Since + enforce.CommitTime + 1,
	}).Draw(t, "read"))
}

func (h *history) drawAsk(t *rapid.T) enforce.BucketCheck {
	var one enforce.BucketCheck
	for rule := 1; rule < len(h.limits); rule++ {
		if rapid.IntRange(0, 3).Draw(t, "skip") == 0 {
			continue
		}
		tier := enforce.Tier{
			Key: enforce.Key{
				Tenant: h.tenant, Rule: rules.RuleID(rule),
				Subject: fmt.Sprint(rapid.IntRange(0, rule).Draw(t, "subject")),
			},
			Limit:  h.limits[rule][rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "reader")],
			Shadow: rapid.IntRange(0, 5).Draw(t, "shadow") == 0,
			After:  rapid.IntRange(0, 2).Draw(t, "after") == 0,
			Meter:  [...]rules.Meter{"", "tokens", "usd"}[rule%3],
		}
		if h.forgettable(tier) {
			h.renew(&tier)
		}
		one.Tiers = append(one.Tiers, tier)
	}
	one.ReadAt = h.drawReadAt(t, h.limits[rapid.IntRange(1, len(h.limits)-1).Draw(t, "rule read")][1])
	if len(one.Tiers) > 0 {
		first := one.Tiers[0]
		one.Cost = drawCost(t, first.Limit, h.reference[first.Key].Level)
	}
	if one.Mixed = len(one.Tiers) > 0 && rapid.IntRange(0, 3).Draw(t, "mixed") == 0; one.Mixed {
		for i := range one.Tiers {
			tier := &one.Tiers[i]
			if tier.Cost = 0; rapid.IntRange(0, 4).Draw(t, "free") > 0 {
				tier.Cost = drawCost(t, tier.Limit, h.reference[tier.Key].Level)
			}
			one.Cost = max(one.Cost, tier.Cost)
		}
	}
	one.Look = rapid.IntRange(0, 7).Draw(t, "look") == 0
	one.NoDelay = rapid.IntRange(0, 3).Draw(t, "no delay") == 0
	one.Record = rapid.IntRange(0, 5).Draw(t, "record") == 0
	if slices.ContainsFunc(one.Tiers,
		func(tier enforce.Tier) bool { return tier.Limit.Kind == rules.KindConcurrency }) {
		h.holders++
		binary.LittleEndian.PutUint64(one.Holder[:], h.holders)
	}
	return one
}

// forgettable reports whether the bucket has another limit, of a later edit or for a caller far behind, and may be
// forgotten.
func (h *history) forgettable(tier enforce.Tier) bool {
	bucket, ok := h.reference[tier.Key]
	if !ok || !h.mayBeGone(tier.Key) {
		return h.unsure[tier.Key]
	}
	return h.unsure[tier.Key] || tier.Limit != bucket.Limit || h.now < fullAt(bucket) ||
		bucket.TimeToFull() == enforce.MaxWait
}

func (h *history) mayBeGone(key enforce.Key) bool {
	bucket, ok := h.reference[key]
	return ok && h.latest >= fullAt(bucket)+idle.Microseconds()
}

func (h *history) avoidForgotten(tier *enforce.Tier) {
	if h.mayBeGone(tier.Key) {
		h.renew(tier)
	}
}

func (h *history) renew(tier *enforce.Tier) {
	h.subjects++
	tier.Key.Subject = fmt.Sprint("somebody new ", h.subjects)
}

func fullAt(bucket enforce.State) int64 { return bucket.Stamp + bucket.TimeToFull().Microseconds() }

func runHistories(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rules.TenantID(tenant.Add(1)), drawAnyLimit)
		for range rapid.IntRange(1, 30).Draw(t, "takes") {
			h.advance(t, s)
			checks := make([]enforce.BucketCheck, rapid.IntRange(1, 4).Draw(t, "checks"))
			for i := range checks {
				checks[i] = h.drawAsk(t)
			}
			want := clone(checks)
			h.reference.take(h.now, want)
			if err := s.Take(h.now, checks); err != nil {
				t.Fatalf("take: %v", err)
			}
			if err := equalAnswers(checks, want); err != nil {
				t.Fatalf("%v after the start: %v", h.elapsed(), err)
			}
		}
	})
}

// runExact compares with rational arithmetic: decisions differ only within a millionth of a token of the cost.
func runExact(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rules.TenantID(1_000_000+tenant.Add(1)), drawLimit)
		var want *exact
		tier := enforce.Tier{Key: enforce.Key{Tenant: h.tenant}}
		for range rapid.IntRange(1, 60).Draw(t, "takes") {
			tier.Limit = h.limits[0][0]
			h.now = max(0, h.now+drawStep(t, tier.Limit))
			h.latest = max(h.latest, h.now)
			if rapid.IntRange(0, 6).Draw(t, "edit") == 0 {
				gone := h.mayBeGone(tier.Key)
				late := rapid.Int64Range(0, 2_000_000).Draw(t, "late")
				h.edit(t, s, 0, h.draw(t, max(tier.Limit.Since+1, h.now-late)))
				if former := tier.Limit; h.limits[0][0].FillsLaterThan(former) && want != nil && !gone {
					want, _ = want.advanced(h.limits[0][0], h.now)
				}
				tier.Limit = h.limits[0][0]
			}
			if h.forgettable(tier) {
				h.subjects++
				tier.Key.Subject, want = fmt.Sprint(h.subjects), nil
			}
			checks := []enforce.BucketCheck{{
				Cost: drawCost(t, tier.Limit, tier.Bucket.Level), Tiers: []enforce.Tier{tier},
				Record: rapid.IntRange(0, 5).Draw(t, "record") == 0,
			}}
			checks[0].Tiers[0].After = rapid.IntRange(0, 2).Draw(t, "after") == 0
			h.reference.take(h.now, clone(checks))
			if err := s.Take(h.now, checks); err != nil {
				t.Fatalf("take: %v", err)
			}
			tier.Bucket = checks[0].Tiers[0].Bucket
			found, written := want.advanced(tier.Limit, h.now)
			if err := found.compare(&checks[0]); err != nil {
				t.Fatal(err)
			}
			if checks[0].Took() {
				found.take(checks[0].Tiers[0].Charged)
				written = true
			}
			if written {
				want = found
			}
			if off := found.off(tier.Bucket.Level); off > 1e-6 {
				t.Fatalf("level %+v is %g tokens off", tier.Bucket.Level, off)
			}
		}
	})
}

func runMillion(t *testing.T, s Store) {
	const takes, batch = 1_000_000, 250
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1000.1/3, 1_000_000_000, 0)}
	var want *exact
	checks := make([]enforce.BucketCheck, batch)
	tiers := make([]enforce.Tier, batch)
	now := epoch
	for range takes / batch {
		for i := range checks {
			tiers[i] = tier
			checks[i] = enforce.BucketCheck{Cost: enforce.Tokens(999_999 + 7919*i), Tiers: tiers[i : i+1]}
		}
		now += 333_331
		want, _ = want.advanced(tier.Limit, now)
		var taken enforce.Tokens
		for _, answer := range take(t, s, now, checks...) {
			if answer.Allowed {
				taken += answer.Cost
			}
		}
		want.take(taken)
	}
	if off := want.off(checks[batch-1].Tiers[0].Bucket.Level); off > 1e-6 {
		t.Errorf("%g tokens off after %d takes", off, takes)
	}
}
