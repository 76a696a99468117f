package enforce_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	slidingWindow = int64(60e6) // µs
	slidingBurst  = int64(100)
)

type burst struct {
	at    int64
	share float64
}

// admits returns the most that a full sliding window admits in its length, as a multiple of its burst.
func admits(t *testing.T, bursts []burst) float64 {
	t.Helper()
	limit := enforce.Limit{Kind: rules.KindSlidingWindow, Burst: slidingBurst, Interval: slidingWindow}
	state := enforce.NewState(limit, 0)
	admitted := make([]enforce.Tokens, len(bursts))
	for i, one := range bursts {
		state.Advance(limit, 0, one.at)
		left := state.View().Level.Micros
		check := enforce.BucketCheck{
			Cost:  max(enforce.Tokens(one.share*float64(left)), min(enforce.Token, left)),
			Tiers: []enforce.Tier{{Limit: limit}},
		}
		if check.TakeFrom([]*enforce.State{&state}, make([]enforce.State, 1), one.at) {
			admitted[i] = check.Cost
		}
	}
	var most, sum enforce.Tokens
	first := 0
	for last, one := range bursts {
		sum += admitted[last]
		for ; bursts[first].at <= one.at-slidingWindow; first++ {
			sum -= admitted[first]
		}
		most = max(most, sum)
	}
	return float64(most) / float64(enforce.Tokens(slidingBurst)*enforce.Token)
}

func drawBurst(random *rand.Rand) burst {
	const windows = 4
	at := random.Int64N(windows * slidingWindow)
	if random.IntN(4) > 0 {
		scale := []int64{2, 1_000, 1_000_000, slidingWindow / 4}[random.IntN(4)]
		at = max(0, (1+random.Int64N(windows))*slidingWindow+random.Int64N(2*scale+1)-scale)
	}
	return burst{at, []float64{1, 1, 0.5, random.Float64()}[random.IntN(4)]}
}

func TestSlidingWindowAdmitsAtMostTwiceItsBurst(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for range 40 { // climbs from random bursts
		var bursts []burst
		most := 0.0
		for range 1500 {
			next := slices.Clone(bursts)
			switch act := random.IntN(3); {
			case act == 0 && len(next) > 1:
				i := random.IntN(len(next))
				next = slices.Delete(next, i, i+1)
			case act == 1 && len(next) > 0:
				next[random.IntN(len(next))] = drawBurst(random)
			case len(next) < 24:
				next = append(next, drawBurst(random))
			}
			slices.SortFunc(next, func(a, b burst) int { return int(a.at - b.at) })
			if got := admits(t, next); got >= most {
				bursts, most = next, got
			}
		}
		worst = max(worst, most)
	}
	t.Logf("adversarial bursts: at most %.9f times the burst in a window's length", worst)
	if worst < 1.9 || worst > 2 {
		t.Errorf("%v times the burst in a window's length, want what the search must find, from 1.9, to 2", worst)
	}
}

// Callers that always ask, and callers that wait for Retry-After, get the whole burst in each window.
func TestSlidingWindowAdmitsItsBurstInEachWindow(t *testing.T) {
	t.Parallel()
	for _, burst := range []int64{1, 2, 3, 5, 10, 50} {
		limit := enforce.Limit{Kind: rules.KindSlidingWindow, Burst: burst, Interval: slidingWindow}
		for name, next := range map[string]func(*enforce.State) time.Duration{
			"asks all the time": func(*enforce.State) time.Duration { return 10 * time.Millisecond },
			"waits as told": func(s *enforce.State) time.Duration {
				wait, _ := s.Wait(enforce.Token)
				return max(wait, time.Microsecond)
			},
		} {
			const windows = 50
			state, admitted := enforce.NewState(limit, 0), int64(0)
			for now := int64(0); now < windows*slidingWindow; now += next(&state).Microseconds() {
				state.Advance(limit, 0, now)
				check := enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{{Limit: limit}}}
				if check.TakeFrom([]*enforce.State{&state}, make([]enforce.State, 1), now) {
					admitted++
				}
			}
			if admitted != windows*burst {
				t.Errorf("a caller that %s is admitted %d times in %d windows of %d", name, admitted, windows, burst)
			}
		}
	}
}

func TestSlidingWindowIsCloseToItsBurstOnRandomTraffic(t *testing.T) {
	t.Parallel()
	for _, times := range []float64{1, 2, 10} {
		random := rand.New(rand.NewPCG(3, 4))
		var requests []burst
		for at := 0.0; len(requests) < 200*int(times*float64(slidingBurst)); {
			at += random.ExpFloat64() * float64(slidingWindow) / float64(slidingBurst) / times
			requests = append(requests, burst{at: int64(at)})
		}
		got := admits(t, requests)
		t.Logf("random requests at %v times the limit for 200 windows: at most %.2f times the burst in a window's "+
			"length", times, got)
		if got >= 1.5 {
			t.Errorf("at %v times the limit: %v times the burst", times, got)
		}
	}
}
