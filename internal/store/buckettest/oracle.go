package buckettest

import (
	"encoding/binary"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

type oracle struct {
	limit    enforce.Limit
	admitted []admission
}

type admission struct {
	at     int64
	amount *big.Rat // tokens or slots
}

// least and most differ by a token where doubles may round a share of half a token to either side.
func (o *oracle) left(now int64) (least, most *big.Rat) {
	used := new(big.Rat)
	interval := o.limit.Interval
	burst := big.NewRat(o.limit.Burst, 1)
	switch o.limit.Kind {
	case rules.KindTokenBucket, rules.KindLeakyBucket:
		used = o.unearned(now)
	case rules.KindFixedWindow:
		used = o.within(now-now%interval, now)
	case rules.KindSlidingWindow:
		start := now - now%interval
		share := o.within(start-interval, start-1)
		share.Mul(share, big.NewRat(start+interval-now, interval))
		used = o.within(start, now)
		double := big.NewRat(1, 1_000_000)
		less, more := roundHalfUp(new(big.Rat).Sub(share, double)), roundHalfUp(new(big.Rat).Add(share, double))
		most = new(big.Rat).Sub(burst, less.Add(less, used))
		return burst.Sub(burst, more.Add(more, used)), most
	case rules.KindSlidingWindowLog, rules.KindConcurrency: // a slot is held for an interval
		used = o.within(now-interval+1, now)
	}
	return burst.Sub(burst, used), burst
}

func roundHalfUp(r *big.Rat) *big.Rat {
	r.Add(r, big.NewRat(1, 2))
	return new(big.Rat).SetInt(new(big.Int).Div(r.Num(), r.Denom())) // Euclidean, which floors
}

func (o *oracle) within(from, to int64) *big.Rat {
	sum := new(big.Rat)
	for _, a := range o.admitted {
		if a.at >= from && a.at <= to {
			sum.Add(sum, a.amount)
		}
	}
	return sum
}

func (o *oracle) unearned(now int64) *big.Rat {
	most, sum := new(big.Rat), new(big.Rat)
	for i := len(o.admitted) - 1; i >= 0; i-- {
		since := o.admitted[i].at
		sum.Add(sum, o.admitted[i].amount)
		elapsed := now - since
		if step := o.limit.Interval; step > 0 {
			elapsed = (now/step - since/step) * step
		}
		earned := new(big.Rat).SetFloat64(o.limit.Rate)
		earned.Mul(earned, big.NewRat(elapsed, 1_000_000))
		if lacks := earned.Sub(sum, earned); lacks.Cmp(most) > 0 {
			most = lacks
		}
	}
	return most
}

func (o *oracle) amount(cost enforce.Tokens) *big.Rat {
	switch {
	case o.limit.Kind == rules.KindConcurrency && cost > 0:
		return big.NewRat(1, 1)
	case o.limit.Kind == rules.KindSlidingWindowLog:
		whole := cost / enforce.Token
		if cost%enforce.Token > 0 {
			whole++
		}
		return big.NewRat(int64(whole), 1)
	}
	return big.NewRat(int64(cost), int64(enforce.Token))
}

func drawOracleLimit(t *rapid.T) enforce.Limit {
	limit := enforce.Limit{
		Kind: rapid.SampledFrom([]rules.Kind{
			rules.KindTokenBucket, rules.KindLeakyBucket, rules.KindFixedWindow, rules.KindSlidingWindow,
			rules.KindSlidingWindowLog, rules.KindConcurrency,
		}).Draw(t, "kind"),
		Burst: rapid.OneOf(rapid.Int64Range(1, 8), rapid.Int64Range(1, rules.MaxListed)).Draw(t, "burst"),
		Since: epoch,
	}
	if limit.Kind != rules.KindLeakyBucket {
		limit.Interval = rapid.SampledFrom([]int64{1, 7, 60, 3600, 86400}).Draw(t,
			"interval") * time.Second.Microseconds()
	}
	if limit.Kind <= rules.KindLeakyBucket {
		limit.Rate = rapid.OneOf(
			rapid.SampledFrom([]float64{0.01, 0.1, 1.0 / 3, 1, 10, 100.7}), rapid.Float64Range(0.01, 1000),
		).Draw(t, "rate")
	}
	return limit
}

func (o *oracle) drawForward(t *rapid.T, now int64) int64 {
	span := o.limit.Interval
	if span == 0 {
		span = int64(float64(o.limit.Burst) / o.limit.Rate * 1e6)
	}
	boundary := span - now%span
	oldest := int64(0) // until an admission is an interval old
	if len(o.admitted) > 0 {
		oldest = o.admitted[rapid.IntRange(0, len(o.admitted)-1).Draw(t, "admission")].at + span - now
	}
	return max(0, rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.SampledFrom([]int64{boundary - 1, boundary, boundary + 1, oldest - 1, oldest}),
		rapid.Int64Range(0, max(1, span/10)),
		rapid.Int64Range(0, 3*span),
	).Draw(t, "forward"))
}

// runOracle lets decisions differ only where rates and shares are rounded, by a millionth of a token.
func runOracle(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		o := &oracle{limit: drawOracleLimit(t)}
		rounding := big.NewRat(1, 1_000_000)
		if o.limit.Kind == rules.KindFixedWindow || o.limit.Kind >= rules.KindSlidingWindowLog {
			rounding = new(big.Rat)
		}
		tier := enforce.Tier{Key: enforce.Key{Tenant: rules.TenantID(4_000_000 + tenant.Add(1))}, Limit: o.limit}
		now := epoch
		for n := range rapid.IntRange(1, 40).Draw(t, "takes") {
			now += o.drawForward(t, now)
			least, most := o.left(now)
			micros, _ := new(big.Rat).Mul(least, big.NewRat(int64(enforce.Token), 1)).Float64()
			check := enforce.BucketCheck{
				Cost:  drawCost(t, o.limit, enforce.Level{Micros: enforce.Tokens(micros)}),
				Look:  rapid.IntRange(0, 7).Draw(t, "look") == 0,
				Tiers: []enforce.Tier{tier},
			}
			check.Record = rapid.IntRange(0, 5).Draw(t, "record") == 0
			check.Tiers[0].After = rapid.IntRange(0, 2).Draw(t, "after") == 0
			binary.LittleEndian.PutUint64(check.Holder[:], uint64(n+1))
			checks := []enforce.BucketCheck{check}
			if err := s.Take(now, checks); err != nil {
				t.Fatalf("take: %v", err)
			}
			o.compare(t, now, &checks[0], least, most, rounding)
		}
	})
}

func (o *oracle) compare(t *rapid.T, now int64, check *enforce.BucketCheck, least, most, rounding *big.Rat) {
	amount, tier := o.amount(check.Cost), &check.Tiers[0]
	needed := amount
	if tier.After {
		needed = big.NewRat(1, int64(enforce.Token))
	}
	missing, spare := new(big.Rat).Sub(needed, most), new(big.Rat).Sub(least, needed)
	if !check.Record && check.Allowed && missing.Cmp(rounding) > 0 || !check.Allowed && spare.Cmp(rounding) > 0 {
		t.Fatalf("%+v: cost %v: allowed %t, but %v are missing", o.limit, check.Cost, check.Allowed,
			missing.FloatString(9))
	}
	wait, ok := tier.Wait(check)
	switch {
	case check.Took():
		charged := big.NewRat(int64(tier.Charged), int64(enforce.Token))
		slack := big.NewRat(2, 1_000_000)
		if lowest, highest := o.fitting(check, amount, least), o.fitting(check, amount, most); charged.Cmp(
			new(big.Rat).Sub(lowest, slack)) < 0 || charged.Cmp(new(big.Rat).Add(highest, slack)) > 0 {
			t.Fatalf("%+v: cost %v: charged %v, want %v to %v", o.limit, check.Cost, tier.Charged,
				lowest.FloatString(9), highest.FloatString(9))
		}
		if charged.Sign() > 0 {
			o.admitted = append(o.admitted, admission{now, charged})
		}
		o.compareDelay(t, check, least)
	case ok != (check.IsChargedAfter(tier) || amount.Cmp(big.NewRat(o.limit.Burst, 1)) <= 0):
		t.Fatalf("%+v: cost %v: can pass: %t", o.limit, check.Cost, ok)
	case !check.Allowed && ok && o.limit.Kind != rules.KindConcurrency:
		end := now + wait.Microseconds()
		slack := big.NewRat(3, 1_000_000)
		_, after := o.left(end)
		if short := after.Sub(needed, after); short.Cmp(slack) > 0 {
			t.Fatalf("%+v: cost %v: the wait is %v, and %v are missing", o.limit, check.Cost, wait,
				short.FloatString(9))
		}
		before, _ := o.left(end - 1)
		if spare := before.Sub(before, needed); spare.Cmp(slack) > 0 {
			t.Fatalf("%+v: cost %v: the wait is %v, which is too long: %v to spare", o.limit, check.Cost, wait,
				spare.FloatString(9))
		}
	}
	least, most = o.left(now)
	got := big.NewRat(int64(tier.Bucket.Level.Micros), int64(enforce.Token))
	slack := big.NewRat(2, 1_000_000)
	if got.Cmp(new(big.Rat).Add(most, slack)) > 0 && got.Sign() > 0 || got.Cmp(new(big.Rat).Sub(least, slack)) < 0 {
		t.Fatalf("%+v: the level is %v, want %v to %v", o.limit, got.FloatString(9), least.FloatString(9),
			most.FloatString(9))
	}
}

func (o *oracle) fitting(check *enforce.BucketCheck, amount, left *big.Rat) *big.Rat {
	switch {
	case !check.IsChargedAfter(&check.Tiers[0]):
		return amount
	case o.limit.Kind == rules.KindConcurrency && check.Record:
		return new(big.Rat)
	case o.limit.Kind == rules.KindTokenBucket:
		left = new(big.Rat).Add(left, big.NewRat(o.limit.Burst, 1))
	}
	if left.Sign() < 0 {
		return new(big.Rat)
	}
	if left.Cmp(amount) < 0 {
		return left
	}
	return amount
}

func (o *oracle) compareDelay(t *rapid.T, check *enforce.BucketCheck, left *big.Rat) {
	want := new(big.Rat)
	if o.limit.Kind == rules.KindLeakyBucket {
		want.Sub(big.NewRat(o.limit.Burst, 1), left)
		want.Quo(want, new(big.Rat).SetFloat64(o.limit.Rate))
	}
	seconds, _ := want.Float64()
	const microsecond = 1e-6
	tolerance := microsecond
	if o.limit.Rate > 0 {
		tolerance += microsecond / o.limit.Rate
	}
	if off := check.Tiers[0].Delay().Seconds() - seconds; off > tolerance || off < -tolerance {
		t.Fatalf("%+v: delayed by %v, want %v s", o.limit, check.Tiers[0].Delay(), seconds)
	}
}
