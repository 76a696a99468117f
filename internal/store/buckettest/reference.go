package buckettest

import (
	"fmt"
	"math"
	"math/big"

	"github.com/sluicegate/sluice/internal/enforce"
)

type reference map[enforce.Key]enforce.State

func (r reference) take(now int64, checks []enforce.BucketCheck) {
	for i := range checks {
		check := &checks[i]
		held := make([]*enforce.State, len(check.Tiers))
		for j := range check.Tiers {
			if state, ok := r[check.Tiers[j].Key]; ok {
				held[j] = &state
			}
		}
		states := make([]enforce.State, len(check.Tiers))
		taken := check.TakeFrom(held, states, now)
		for j := range check.Tiers {
			switch tier := &check.Tiers[j]; {
			case held[j] != nil:
				r[tier.Key] = *held[j]
			case taken && check.Takes(j):
				r[tier.Key] = states[j]
			}
		}
	}
}

func (r reference) credit(now int64, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
	after enforce.Bucket,
) {
	state, used := r[key]
	if !used {
		state = enforce.NewState(limit, now)
	}
	state.Advance(limit, 0, now)
	settled := state
	state.Credit(amount)
	if used || state != settled {
		r[key] = state
	}
	return settled.View(), state.View()
}

type exact struct {
	level *big.Rat
	stamp int64
	limit enforce.Limit
}

// advanced is also whether to keep the bucket even if nothing is taken; an unused one is nil.
func (e *exact) advanced(limit enforce.Limit, now int64) (settled *exact, mustWrite bool) {
	if e == nil {
		return &exact{level: big.NewRat(limit.Burst, 1), stamp: now, limit: limit}, false
	}
	settled = &exact{level: new(big.Rat).Set(e.level), stamp: e.stamp, limit: e.limit}
	if settled.stamp > now {
		settled.stamp, mustWrite = now, true
	}
	if limit.Since > settled.limit.Since {
		settled.earn(min(max(limit.Since, settled.stamp), now))
		settled.limit, mustWrite = limit, true
		if deepest := big.NewRat(-limit.Burst, 1); settled.level.Cmp(deepest) < 0 {
			settled.level = deepest
		}
	}
	settled.earn(now)
	return settled, mustWrite
}

func (e *exact) earn(now int64) {
	gain := new(big.Rat).SetFloat64(e.limit.Rate)
	gain.Mul(gain, big.NewRat(now-e.stamp, 1_000_000))
	e.level.Add(e.level, gain)
	if burst := big.NewRat(e.limit.Burst, 1); e.level.Cmp(burst) > 0 {
		e.level = burst
	}
	e.stamp = now
}

func (e *exact) take(cost enforce.Tokens) {
	e.level.Sub(e.level, big.NewRat(int64(cost), int64(enforce.Token)))
}

func (e *exact) credit(amount enforce.Tokens) {
	e.level.Add(e.level, big.NewRat(int64(amount), int64(enforce.Token)))
	if burst := big.NewRat(e.limit.Burst, 1); e.level.Cmp(burst) > 0 {
		e.level = burst
	}
	if e.level.Sign() < 0 {
		e.level = new(big.Rat)
	}
}

func (e *exact) off(level enforce.Level) float64 {
	got := new(big.Rat).SetFrac64(int64(level.Micros), int64(enforce.Token))
	got.Add(got, new(big.Rat).SetFrac(new(big.Int).SetUint64(uint64(level.Fraction)),
		new(big.Int).Lsh(big.NewInt(int64(enforce.Token)), 32)))
	off, _ := got.Sub(got, e.level).Float64()
	return math.Abs(off)
}

func (e *exact) compare(check *enforce.BucketCheck) error {
	tier, needed, missing := &check.Tiers[0], check.Cost, 0.0
	if tier.After {
		needed = 1
	}
	if missing = e.missing(needed); check.Record {
		missing = 0
	}
	if check.Allowed != (missing <= 0) && math.Abs(missing) > 1e-6 {
		return fmt.Errorf("cost %v: allowed %t, but %v tokens are missing", check.Cost, check.Allowed, missing)
	}
	charged := 0.0
	if check.Took() {
		charged = inTokens(check.Cost)
		if check.IsChargedAfter(tier) {
			charged = min(charged, max(0, float64(e.limit.Burst)-e.missing(0)))
		}
	}
	// Both levels, and a charge's whole millionths, are off by at most a millionth.
	if off := math.Abs(inTokens(tier.Charged) - charged); off > 3e-6 {
		return fmt.Errorf("cost %v: charged %v, want %v", check.Cost, tier.Charged, charged)
	}
	return nil
}

func inTokens(amount enforce.Tokens) float64 { return float64(amount) / float64(enforce.Token) }

func (e *exact) missing(cost enforce.Tokens) float64 {
	missing, _ := new(big.Rat).Sub(big.NewRat(int64(cost), int64(enforce.Token)), e.level).Float64()
	return missing
}
