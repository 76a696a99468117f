package simulate

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// exactTier is a simulated limit in rational arithmetic, in tokens.
type exactTier struct {
	level  *big.Rat
	at     time.Duration
	limit  enforce.Limit
	shadow bool
}

func rat(amount enforce.Tokens) *big.Rat { return big.NewRat(int64(amount), int64(enforce.Token)) }

// levelAt returns what the bucket holds if nothing is taken before then.
func (e *exactTier) levelAt(at time.Duration) *big.Rat {
	gain := new(big.Rat).SetFloat64(e.limit.Rate)
	level := gain.Mul(gain, big.NewRat((at-e.at).Microseconds(), 1_000_000))
	if level.Add(level, e.level); level.Cmp(big.NewRat(e.limit.Burst, 1)) > 0 {
		level.SetInt64(e.limit.Burst)
	}
	return level
}

// missing returns how many tokens the level lacks for a cost; negative if it has more.
func (e *exactTier) missing(cost enforce.Tokens) float64 {
	missing, _ := new(big.Rat).Sub(rat(cost), e.level).Float64()
	return missing
}

// drawExact draws limits to simulate, and the same in rational arithmetic.
func drawExact(t *rapid.T) (candidates []Candidate, tiers []*exactTier) {
	for range rapid.IntRange(1, 4).Draw(t, "candidates") {
		c := candidate(
			rapid.SampledFrom([]float64{0.1, 1.0 / 3, 7, 100.7, 1000.1 / 3}).Draw(t, "rate"),
			rapid.Int64Range(1, 50).Draw(t, "burst"),
		)
		if rapid.IntRange(0, 3).Draw(t, "shadow") == 0 {
			c.Mode = rules.ModeShadow
		}
		level := enforce.Tokens(rapid.Int64Range(0, c.Burst*int64(enforce.Token)).Draw(t, "level"))
		c.Level = &level
		candidates = append(candidates, c)
		tiers = append(tiers, &exactTier{level: rat(level), limit: c.Limit(), shadow: c.Mode == rules.ModeShadow})
	}
	return candidates, tiers
}

func TestASimulationStaysWithinAMillionthOfExactArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		candidates, tiers := drawExact(t)
		var arrivals []Arrival
		at := time.Duration(0)
		for range rapid.IntRange(1, 80).Draw(t, "arrivals") {
			at += time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1e6), rapid.Int64Range(0, 1e8)).Draw(t, "gap")) * time.Microsecond
			arrivals = append(arrivals, Arrival{at, enforce.Tokens(rapid.Int64Range(1, 10*int64(enforce.Token)).Draw(t, "cost"))})
		}
		until := at + time.Minute
		got, err := Run(t.Context(), candidates, arrivals, until)
		if err != nil {
			t.Fatal(err)
		}
		for i, arrival := range arrivals {
			expectCurves(t, got, tiers, arrival.At)
			if !decideExactly(t, &got.Verdicts[i], tiers, arrival) {
				return
			}
		}
		expectCurves(t, got, tiers, until)
	})
}

// decideExactly decides an arrival in exact arithmetic. It returns false where a level is within a
// millionth of a token of the cost: either answer is right then, and so are two ways to go on.
func decideExactly(t *rapid.T, got *Verdict, tiers []*exactTier, arrival Arrival) (sure bool) {
	allowed := true
	for _, tier := range tiers {
		tier.level, tier.at = tier.levelAt(arrival.At), arrival.At
		missing := tier.missing(arrival.Cost)
		if math.Abs(missing) <= 1e-6 {
			return false
		}
		allowed = allowed && (tier.shadow || missing <= 0)
	}
	if got.Allowed != allowed {
		t.Fatalf("%v after the start a cost of %v is allowed: %t", arrival.At, arrival.Cost, got.Allowed)
	}
	for _, tier := range tiers {
		if allowed && tier.missing(arrival.Cost) <= 0 {
			tier.level.Sub(tier.level, rat(arrival.Cost))
		}
	}
	return true
}

// expectCurves compares each curve, joined with straight lines, with the exact level at a moment
// before the arrival then and half way from the latest one.
func expectCurves(t *rapid.T, got *Result, tiers []*exactTier, at time.Duration) {
	for i, tier := range tiers {
		latest := tier.at
		if latest == at {
			continue // the moment has several levels
		}
		for _, moment := range []time.Duration{latest + (at-latest)/2, at} {
			want, _ := tier.levelAt(moment).Float64()
			// The corner where a bucket gets full is up to a microsecond late.
			if level := levelAt(got.Tiers[i].Curve, moment); math.Abs(level-want) > 2e-6+tier.limit.Rate*2e-6 {
				t.Fatalf("tier %d, %v after the start: the curve says %v, exact is %v", i, moment, level, want)
			}
		}
	}
}

// levelAt reads a curve; where it drops at that moment, the highest.
func levelAt(curve []Point, at time.Duration) float64 {
	tokens := func(p Point) float64 { return float64(p.Level) / float64(enforce.Token) }
	i, exact := slices.BinarySearchFunc(curve, at, func(p Point, at time.Duration) int { return int(p.At - at) })
	if exact {
		return tokens(curve[i])
	}
	a, b := curve[i-1], curve[i]
	return tokens(a) + (tokens(b)-tokens(a))*float64(at-a.At)/float64(b.At-a.At)
}

func TestAThinnedCurveKeepsItsShape(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	const until = 1000 * time.Second
	for _, n := range []int{1, 2, maxPoints, maxPoints + 1, 50_000} {
		var all []Point
		for range n - 1 {
			all = append(all, Point{time.Duration(random.Int64N(int64(until))), enforce.Tokens(random.Int64N(1e9))})
		}
		all = append(all, Point{until, 5})
		slices.SortStableFunc(all, func(a, b Point) int { return int(a.At - b.At) })
		c := curve{until: until}
		for _, p := range all {
			c.add(p)
		}
		thinned := c.all()
		if n <= maxPoints && !slices.Equal(thinned, all) {
			t.Errorf("of %d points %d were kept", n, len(thinned))
		}
		if len(thinned) > maxPoints {
			t.Errorf("%d points became %d", n, len(thinned))
		}
		if got, want := extremes(thinned, until), extremes(all, until); !slices.Equal(got, want) {
			t.Errorf("%d points lost a first, lowest, highest or last of a column", n)
		}
	}
}

// extremes returns the first, lowest, highest and last level of each column.
func extremes(points []Point, until time.Duration) [][4]enforce.Tokens {
	columns := make([][4]enforce.Tokens, curveColumns)
	seen := make([]bool, curveColumns)
	for _, p := range points {
		i := int(p.At / (until/curveColumns + 1))
		c := &columns[i]
		if !seen[i] {
			*c, seen[i] = [4]enforce.Tokens{p.Level, p.Level, p.Level, p.Level}, true
		}
		*c = [4]enforce.Tokens{c[0], min(c[1], p.Level), max(c[2], p.Level), p.Level}
	}
	return columns
}

func TestTheCurveOfAsManyArrivalsAsThereCanBeIsBounded(t *testing.T) {
	t.Parallel()
	for name, pattern := range map[string]Pattern{
		"evenly":           {Rate: 100, BurstSize: 1, Duration: 1000 * time.Second, Cost: enforce.Token},
		"in bursts":        {Rate: 100, BurstSize: 1000, Duration: 1000 * time.Second, Cost: enforce.Token},
		"at one moment":    {Rate: 1, BurstSize: maxArrivals, Duration: time.Second, Cost: 1},
		"within a moment":  {Rate: 1e9, BurstSize: 1, Duration: 100 * time.Microsecond, Cost: 1},
		"over a long time": {Rate: 0.01, BurstSize: 1000, Duration: 100 * 1000 * time.Second, Cost: enforce.Token},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrivals, err := pattern.Arrivals()
			if err != nil {
				t.Fatal(err)
			}
			limit := candidate(80, 2000)
			got, err := Run(t.Context(), []Candidate{limit}, arrivals, pattern.Duration)
			if err != nil {
				t.Fatal(err)
			}
			curve := got.Tiers[0].Curve
			if len(curve) > maxPoints || len(got.Verdicts) != len(arrivals) || got.Allowed+got.Denied != len(arrivals) {
				t.Errorf("%d points, %d verdicts, %d + %d answers to %d arrivals", len(curve), len(got.Verdicts), got.Allowed, got.Denied, len(arrivals))
			}
			if curve[0] != (Point{0, 2000 * enforce.Token}) || curve[len(curve)-1].At != pattern.Duration {
				t.Errorf("from %+v to %+v", curve[0], curve[len(curve)-1])
			}
			if !slices.IsSortedFunc(curve, func(a, b Point) int { return int(a.At - b.At) }) {
				t.Error("the points are out of order")
			}
		})
	}
}
