package enforce

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/rules"
)

const testEpoch = int64(1_800_000_000_000_000) // µs

func TestLevelHolds(t *testing.T) {
	t.Parallel()
	const half = fractions / 2
	tests := map[string]struct {
		level Level
		cost  Tokens
		want  bool
	}{
		"exactly the cost":                          {Level{Micros: 5}, 5, true},
		"more than the cost":                        {Level{Micros: 6}, 5, true},
		"half a millionth less is forgiven":         {Level{Micros: 4, Fraction: half}, 5, true},
		"more than half a millionth less is not":    {Level{Micros: 4, Fraction: half - 1}, 5, false},
		"a millionth less is not":                   {Level{Micros: 3, Fraction: fractions - 1}, 5, false},
		"an empty bucket holds nothing":             {Level{}, 0, true},
		"a bucket that was forgiven holds nothing":  {Level{Micros: -1, Fraction: half}, 0, true},
		"and not the smallest cost in the same way": {Level{Micros: -1, Fraction: half}, 1, false},
	}
	for name, test := range tests {
		if got := test.level.Holds(test.cost); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	const second = int64(1_000_000)
	old := Limit{Rate: 1, Burst: 10, Since: 0}
	raised := Limit{Rate: 100, Burst: 1000, Since: 4 * second}
	cut := Limit{Rate: 1, Burst: 2, Since: 4 * second}
	const readLater = CommitTime + 1 // than old came into force
	type settled struct {
		level     Tokens // at 1 s, at the old limit
		limit     Limit
		now       int64
		want      Tokens
		wantLimit Limit
		mustWrite bool
		readAt    int64
	}
	tests := map[string]settled{
		"tokens are earned continuously":                {0, old, 3*second + 500_000, 2_500_000, old, false, 0},
		"nothing is earned in no time":                  {3, old, second, 3, old, false, 0},
		"a bucket never holds more than its burst":      {9 * Token, old, 100 * second, 10 * Token, old, false, 0},
		"a clock that went back adds nothing":           {3 * Token, old, second - 1, 3 * Token, old, true, 0},
		"a raise counts from its moment":                {0, raised, 5 * second, 103 * Token, raised, true, 0},
		"a raise leaves a full bucket at its old burst": {10 * Token, raised, 4 * second, 10 * Token, raised, true, 0},
		"a cut caps at once":                            {9 * Token, cut, 4 * second, 2 * Token, cut, true, 0},
		"an edit ahead of the clock holds from now":     {0, raised, 2 * second, Token, raised, true, 0},
		"an edit from before the last look counts from that": {
			0,
			Limit{Rate: 100, Burst: 1000, Since: 1},
			2 * second, 100 * Token,
			Limit{Rate: 100, Burst: 1000, Since: 1},
			true, 0,
		},
		"an edit seen by a clock that went back adds nothing": {
			3 * Token, raised, second / 2, 3 * Token, raised, true,
			0,
		},
		"an older limit changes nothing": {
			0, Limit{Rate: 100, Burst: 1000, Since: -1}, 2 * second, Token, old, false, 0,
		},
		"another limit of the same moment changes nothing": {
			0, Limit{Rate: 100, Burst: 1000, Since: 0}, 2 * second, Token, old, false, 0,
		},
		"a limit whose edit the database lost gives way to the older one, as of the reading": {
			0,
			Limit{Rate: 5, Burst: 100, Since: -9},
			20 * second, 9_000_001 + 9_999_999*5,
			Limit{Rate: 5, Burst: 100, Since: 1},
			true, readLater,
		},
		"a limit that may still be committed does not": {
			0, Limit{Rate: 5, Burst: 100, Since: -9}, 20 * second, 10 * Token, old, false, CommitTime,
		},
		"another limit of the same moment gives way to what the database holds": {
			0,
			Limit{Rate: 1, Burst: 3, Since: 0},
			2 * second, Token,
			Limit{Rate: 1, Burst: 3, Since: 1},
			true,
			readLater,
		},
		"the same limit is not lost, whenever it came into force": {
			0, Limit{Rate: 1, Burst: 10, Since: -9}, 2 * second, Token, old, false, readLater,
		},
		"a later limit is an edit, whenever the database was read": {
			0, cut, 5 * second, 2 * Token, cut, true, readLater,
		},
	}
	for name, test := range tests {
		b := State{Bucket: Bucket{Level: Level{Micros: test.level}, Stamp: second, Limit: old}}
		mustWrite := b.Advance(test.limit, test.readAt, test.now)
		want := State{Bucket: Bucket{Level: Level{Micros: test.want}, Stamp: test.now, Limit: test.wantLimit}}
		if b != want || mustWrite != test.mustWrite {
			t.Errorf("%s: %+v, must write %t; want %+v, %t", name, b, mustWrite, want, test.mustWrite)
		}
		again := b
		if again.Advance(test.limit, test.readAt, test.now) || again != b {
			t.Errorf("%s: settling again changed it to %+v", name, again)
		}
	}
}

func TestWaitAndTimeToFull(t *testing.T) {
	t.Parallel()
	const year = int64(rules.MaxTimeToFull / time.Second)
	tests := map[string]struct {
		rate         float64
		burst        int64
		level        Tokens
		cost         Tokens
		wait, toFull time.Duration
		never        bool
	}{
		"a cost that is there has no wait": {
			rate: 1, burst: 10, level: 5 * Token, cost: 5 * Token,
			toFull: 5 * time.Second,
		},
		"a missing token at 10 per second": {
			rate: 10, burst: 10, level: 0, cost: Token, wait: 100 * time.Millisecond,
			toFull: time.Second,
		},
		"a wait is rounded up": {
			rate: 3, burst: 1, level: 0, cost: Token,
			wait: 333_334 * time.Microsecond, toFull: 333_334 * time.Microsecond,
		},
		"a wait is a microsecond at least": {
			rate: 1e9, burst: 1, level: 0, cost: 1, wait: time.Microsecond,
			toFull: time.Microsecond,
		},
		"a full bucket is full":              {rate: 1, burst: 10, level: 10 * Token, cost: Token},
		"a cost above the burst has no wait": {rate: 1, burst: 10, level: 10 * Token, cost: 10*Token + 1, never: true},
		"a debt takes as long as the burst": {
			rate: 1, burst: year, level: Tokens(-year) * Token, cost: 1,
			wait: rules.MaxTimeToFull + time.Microsecond, toFull: 2 * rules.MaxTimeToFull,
		},
		"no time is longer than that": {
			rate: rules.MinRate, burst: rules.MaxBurst, cost: rules.MaxBurst * Token,
			wait: MaxWait, toFull: MaxWait,
		},
	}
	for name, test := range tests {
		b := State{Bucket: Bucket{Level: Level{Micros: test.level}, Limit: Limit{Rate: test.rate, Burst: test.burst}}}
		wait, ok := b.Wait(test.cost)
		if wait != test.wait || ok == test.never || b.TimeToFull() != test.toFull {
			t.Errorf("%s: wait %v, %t; full in %v", name, wait, ok, b.TimeToFull())
		}
	}
}

func anyLimit(since int64) *rapid.Generator[Limit] {
	return rapid.Custom(func(t *rapid.T) Limit {
		rate := rapid.OneOf(
			rapid.Float64Range(rules.MinRate, rules.MaxRate),
			rapid.Map(rapid.Float64Range(math.Log(rules.MinRate), math.Log(rules.MaxRate)), math.Exp),
			rapid.Map(rapid.Int64Range(1, rules.MaxRate), func(n int64) float64 { return float64(n) }),
		).Draw(t, "rate")
		burst := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, rules.MaxBurst)).Draw(t, "burst")
		return Limit{Rate: min(max(rate, rules.MinRate), rules.MaxRate), Burst: burst, Since: since}
	})
}

func anyBucket() *rapid.Generator[State] {
	return rapid.Custom(func(t *rapid.T) State {
		b := NewState(anyLimit(0).Draw(t, "limit"), testEpoch)
		if missing := rapid.Int64Range(0, int64(b.Level.Micros)).Draw(t, "missing"); missing > 0 {
			b.Level = Level{Micros: b.Level.Micros - Tokens(missing), Fraction: rapid.Uint32().Draw(t, "fraction")}
		}
		return b
	})
}

func anyCost(t *rapid.T, b State) Tokens {
	return Tokens(rapid.OneOf(
		rapid.Int64Range(0, int64(capacity(b.Limit))),
		rapid.Just(int64(capacity(b.Limit))),
		rapid.Just(int64(min(b.Level.Micros+1, capacity(b.Limit)))),
	).Draw(t, "cost"))
}

func TestWaitingAsToldIsEnoughAndNeverTooLong(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket().Draw(t, "bucket")
		cost := anyCost(t, b)
		wait, ok := b.Wait(cost)
		if !ok {
			t.Fatalf("cost %v has no wait in a burst of %d", cost, b.Limit.Burst)
		}
		if wait == 0 || wait == MaxWait {
			return
		}
		early := rationalOf(b)
		early.settle(b.Limit, testEpoch+wait.Microseconds()-1)
		if off := early.above(Level{Micros: cost}); off > 1e-6 {
			t.Errorf("a microsecond before the %v is over there are %g tokens to spare", wait, off)
		}
		b.Advance(b.Limit, 0, testEpoch+wait.Microseconds())
		if !b.Level.Holds(cost) {
			t.Errorf("after %v the level is %+v, which does not hold %v", wait, b.Level, cost)
		}
	})
}

func TestWaitingIsEnoughHoweverOftenTheBucketIsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := anyBucket().Draw(t, "bucket")
		cost := anyCost(t, b)
		wait, _ := b.Wait(cost)
		if wait == MaxWait {
			return
		}
		stops := rapid.SliceOfN(rapid.Int64Range(0, wait.Microseconds()), 0, 20).Draw(t, "stops")
		for _, stop := range stops {
			if at := testEpoch + stop; at > b.Stamp {
				b.Advance(b.Limit, 0, at)
			}
		}
		b.Advance(b.Limit, 0, testEpoch+wait.Microseconds())
		if !b.Level.Holds(cost) {
			t.Errorf("after %v the level is %+v, which does not hold %v", wait, b.Level, cost)
		}
	})
}

type rational struct {
	level *big.Rat
	stamp int64
	limit Limit
}

func rationalOf(b State) *rational {
	return &rational{level: b.Level.rat(), stamp: b.Stamp, limit: b.Limit}
}

func (l Level) rat() *big.Rat {
	fraction := new(big.Rat).SetFrac(new(big.Int).SetUint64(uint64(l.Fraction)), big.NewInt(fractions))
	micros := fraction.Add(fraction, new(big.Rat).SetInt64(int64(l.Micros)))
	return micros.Quo(micros, new(big.Rat).SetInt64(int64(Token)))
}

func (r *rational) settle(limit Limit, now int64) {
	r.stamp = min(r.stamp, now)
	if limit.Since > r.limit.Since {
		r.earn(min(max(limit.Since, r.stamp), now))
		r.limit = limit
	}
	r.earn(now)
}

func (r *rational) earn(now int64) {
	gain := new(big.Rat).SetFloat64(r.limit.Rate)
	r.level.Add(r.level, gain.Mul(gain, big.NewRat(now-r.stamp, 1_000_000)))
	if burst := new(big.Rat).SetInt64(r.limit.Burst); r.level.Cmp(burst) > 0 {
		r.level = burst
	}
	r.stamp = now
}

func (r *rational) above(level Level) float64 {
	off, _ := new(big.Rat).Sub(r.level, level.rat()).Float64()
	return off
}

func TestRandomHistoriesStayWithinAMillionthOfExactArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := testEpoch
		b := NewState(anyLimit(now).Draw(t, "limit"), now)
		want := rationalOf(b)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += rapid.OneOf(
				rapid.Int64Range(0, 100),
				rapid.Int64Range(0, b.TimeToFull().Microseconds()),
				rapid.Int64Range(-1e9, 1e12),
			).Draw(t, "clock")
			limit := b.Limit
			if rapid.IntRange(0, 9).Draw(t, "edit") == 0 {
				limit = anyLimit(max(limit.Since+1, now-rapid.Int64Range(-1e6, 1e7).Draw(t, "late"))).Draw(t, "limit")
			}
			b.Advance(limit, 0, now)
			want.settle(limit, now)
			if off := math.Abs(want.above(b.Level)); off > 1e-6 {
				t.Fatalf("level %+v is %g tokens off", b.Level, off)
			}
			if cost := anyCost(t, b); b.Level.Holds(cost) {
				b.Level.Micros -= cost
				want.level.Sub(want.level, Level{Micros: cost}.rat())
			}
		}
	})
}

func TestAMillionTakesDoNotDrift(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		limit Limit
		step  int64
	}{
		"a rate without a whole token":     {Limit{Rate: 0.3, Burst: 1_000_000_000}, 3_333_331},
		"a rate that doubles cannot hold":  {Limit{Rate: 1000.1 / 3, Burst: 1_000_000_000}, 4_001},
		"a rate that is mostly whole":      {Limit{Rate: 999_999_999.9, Burst: 1_000_000_000}, 1},
		"the smallest rate, by the minute": {Limit{Rate: rules.MinRate, Burst: 1_000_000_000}, 60_000_007},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Half full, the bucket reaches neither end, so its exact level is its earnings less all costs.
			b := NewState(test.limit, testEpoch)
			b.Level.Micros /= 2
			want := rationalOf(b)
			var costs Tokens
			for i := range int64(1_000_000) {
				b.Advance(test.limit, 0, testEpoch+(i+1)*test.step)
				cost := max(1, b.Level.Micros-capacity(test.limit)/2)
				b.Level.Micros -= cost
				costs += cost
			}
			want.level.Sub(want.level, Level{Micros: costs}.rat())
			want.settle(test.limit, b.Stamp)
			if off := math.Abs(want.above(b.Level)); off > 1e-6 {
				t.Errorf("%g tokens off", off)
			}
		})
	}
}

func TestTakingAwayEverythingLeavesADebtAsItIs(t *testing.T) {
	t.Parallel()
	for _, left := range []Tokens{-9, 0, 9} {
		state := NewState(Limit{Rate: 1, Burst: 10}, 1)
		state.Level.Micros = left
		state.Credit(-Fill)
		if want := min(left, 0); state.Level.Micros != want {
			t.Errorf("%v tokens became %v, want %v", left, state.Level.Micros, want)
		}
	}
}
