package buckettest

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// RunPromises takes from one bucket with 32 callers of all processes, for each algorithm. The store's clock stamps
// admissions, so bounds are exact; the burst must be so small that some are denied.
func RunPromises(t *testing.T, processes []enforce.ReservingBuckets, burst int64, lasts time.Duration) {
	const window = int64(250_000)
	rate, most := float64(burst)*10/3, float64(burst)
	promises := map[string]struct {
		limit    enforce.Limit
		exceeded func(stamps []int64) float64 // by how many tokens; at most 0 if the promise was kept
	}{
		"token bucket": {
			enforce.Limit{Rate: rate, Burst: burst},
			func(stamps []int64) float64 { return aboveRate(stamps, rate, 1) - most },
		},
		"steps": {
			enforce.Limit{Rate: rate, Burst: burst, Interval: window},
			func(stamps []int64) float64 { return aboveRate(stamps, rate, window) - most },
		},
		"queue": {
			enforce.Limit{Kind: rules.KindLeakyBucket, Rate: rate, Burst: burst},
			func(stamps []int64) float64 { return aboveRate(stamps, rate, 1) - most },
		},
		"fixed window": {
			enforce.Limit{Kind: rules.KindFixedWindow, Burst: burst, Interval: window},
			func(stamps []int64) float64 { return mostInAligned(stamps, window) - most },
		},
		"sliding window": {
			enforce.Limit{Kind: rules.KindSlidingWindow, Burst: burst, Interval: window},
			func(stamps []int64) float64 {
				return max(mostInAligned(stamps, window)-most, mostWithin(stamps, window)-2*most)
			},
		},
		"log": {
			enforce.Limit{Kind: rules.KindSlidingWindowLog, Burst: burst, Interval: window},
			func(stamps []int64) float64 { return mostWithin(stamps, window) - most },
		},
		"concurrency": { // no slot is released, so each is held for a window
			enforce.Limit{Kind: rules.KindConcurrency, Burst: burst, Interval: window},
			func(stamps []int64) float64 { return mostWithin(stamps, window) - most },
		},
	}
	for name, promise := range promises {
		t.Run(name, func(t *testing.T) {
			stamps, denied := hammer(t, processes, enforce.Tier{Key: key(1, name), Limit: promise.limit}, 2*int(burst),
				lasts)
			over := promise.exceeded(stamps)
			t.Logf("%d admitted, %d denied; the most admitted was %g from the bound", len(stamps), denied, 0-over)
			if over > 1e-6 {
				t.Errorf("%g more were admitted than promised", over)
			}
			if denied == 0 || len(stamps) < int(burst) {
				t.Errorf("%d admitted and %d denied: the load was too small to test anything", len(stamps), denied)
			}
		})
	}
}

// hammer returns the sorted times of the admissions. Each process begins with a batch of many checks, so that even a
// slow machine gets denials.
func hammer(
	t *testing.T, processes []enforce.ReservingBuckets, tier enforce.Tier, many int, lasts time.Duration,
) (stamps []int64, denied int) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	ends := time.Now().Add(lasts)
	for caller := range 32 {
		callers.Go(func() {
			var mine []int64
			var no int
			size := 1
			if caller < len(processes) {
				size = many
			}
			for n := 0; n == 0 || time.Now().Before(ends); size = 1 {
				checks := make([]enforce.BucketCheck, size)
				for i := range checks {
					n++
					checks[i] = checkOf(1, tier)
					binary.LittleEndian.PutUint64(checks[i].Holder[:], uint64(caller+1)<<32|uint64(n))
				}
				if err := processes[caller%len(processes)].Take(context.Background(), checks); err != nil {
					t.Errorf("take: %v", err)
					return
				}
				for i := range checks {
					if checks[i].Allowed {
						mine = append(mine, checks[i].Tiers[0].Bucket.Stamp)
					} else {
						no++
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			stamps, denied = append(stamps, mine...), denied+no
		})
	}
	callers.Wait()
	slices.Sort(stamps)
	return stamps, denied
}

// aboveRate returns the largest excess over a rate in any interval, on a clock that ticks once per step of µs.
func aboveRate(stamps []int64, rate float64, step int64) float64 {
	least, most := math.Inf(1), 0.0
	for i, at := range stamps {
		earned := rate * float64((at-stamps[0]+stamps[0]%step)/step*step) / 1e6
		least = min(least, float64(i)-earned)
		most = max(most, float64(i+1)-earned-least)
	}
	return most
}

func mostInAligned(stamps []int64, window int64) float64 {
	counts := map[int64]float64{}
	most := 0.0
	for _, at := range stamps {
		counts[at/window]++
		most = max(most, counts[at/window])
	}
	return most
}

func mostWithin(stamps []int64, window int64) float64 {
	first, most := 0, 0
	for last, at := range stamps {
		for stamps[first] <= at-window {
			first++
		}
		most = max(most, last-first+1)
	}
	return float64(most)
}

type slotInput struct {
	settle bool
	id     uint16
}

type slotOutput struct {
	done bool
	left int64
}

var threeSlots = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		held, in, out := state.(string), input.(slotInput), output.(slotOutput)
		id := string(binary.BigEndian.AppendUint16(nil, in.id))
		at := -2
		for i := 0; i < len(held); i += 2 {
			if held[i:i+2] == id {
				at = i
			}
		}
		switch {
		case in.settle && out.done:
			if at < 0 {
				return false, held
			}
			return true, held[:at] + held[at+2:]
		case in.settle:
			return at < 0, held
		case out.done != (len(held) < 2*3):
			return false, held
		case out.done:
			held += id
		}
		return out.left == 3-int64(len(held)/2), held
	},
}

// RunSlots checks that slots and reservations of processes that share a store are linearizable.
func RunSlots(t *testing.T, histories int, open func(t *testing.T) []enforce.ReservingBuckets) {
	for range histories {
		history := recordSlots(t, open(t))
		settledTwice := 0
		for _, op := range history {
			if op.Input.(slotInput).settle && !op.Output.(slotOutput).done {
				settledTwice++
			}
		}
		t.Logf("%d operations, %d of them settlements that came too late", len(history), settledTwice)
		if result := porcupine.CheckOperationsTimeout(threeSlots, history, 5*time.Minute); result != porcupine.Ok {
			t.Errorf("a history of %d operations: %s", len(history), result)
		}
	}
}

func recordSlots(t *testing.T, processes []enforce.ReservingBuckets) []porcupine.Operation {
	t.Helper()
	const callers, each = 8, 40
	tier := enforce.Tier{
		Key:   key(1, "42"),
		Limit: enforce.Limit{Kind: rules.KindConcurrency, Burst: 3, Interval: time.Hour.Microseconds()},
	}
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	var open []uint16
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(start.UnixNano()), uint64(caller)))
			for n := range each {
				in := slotInput{id: uint16(caller*each + n)}
				mu.Lock()
				if in.settle = len(open) > 0 && random.IntN(3) > 0; in.settle {
					i := random.IntN(len(open))
					in.id = open[i]
					if random.IntN(3) > 0 { // or another caller also settles it
						open = slices.Delete(open, i, i+1)
					}
				}
				mu.Unlock()
				call := time.Since(start).Nanoseconds()
				out, err := in.on(processes[caller%len(processes)], tier)
				op := porcupine.Operation{
					ClientId: caller, Input: in, Call: call, Output: out,
					Return: time.Since(start).Nanoseconds(),
				}
				if err != nil {
					t.Errorf("%+v: %v", in, err)
					return
				}
				mu.Lock()
				if history = append(history, op); !in.settle && out.done {
					open = append(open, in.id)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func (in slotInput) on(s enforce.ReservingBuckets, tier enforce.Tier) (slotOutput, error) {
	id := enforce.ReservationID{byte(in.id), byte(in.id >> 8), 1}
	if in.settle {
		settled, err := s.SettleReservation(context.Background(), tier.Key.Tenant, id, enforce.Settlement{})
		return slotOutput{done: settled.Found}, err
	}
	checks := []enforce.BucketCheck{checkOf(1, tier)}
	checks[0].Reserve = &enforce.Reservation{ID: id, Life: time.Hour, Key: "a key"}
	checks[0].Holder = id.Holder()
	err := s.Take(context.Background(), checks)
	return slotOutput{checks[0].Allowed, int64(checks[0].Tiers[0].Bucket.Level.Micros / enforce.Token)}, err
}

// RunOneReservationTooMany opens a tenant's most reservations, for an hour; used gets the number open, before and
// after.
func RunOneReservationTooMany(t *testing.T, s enforce.ReservingBuckets, used func(open int)) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: enforce.Limit{Rate: 1, Burst: rules.MaxBurst}}
	reserve := func(n int) enforce.BucketCheck {
		check := checkOf(1, tier)
		var id enforce.ReservationID
		binary.LittleEndian.PutUint64(id[:], uint64(n))
		check.Reserve, check.Holder = &enforce.Reservation{
			ID: id, Life: time.Hour,
			Key: "00000000-0000-0000-0000-000000000000",
		}, id.Holder()
		return check
	}
	must := func(checks ...enforce.BucketCheck) []enforce.BucketCheck {
		t.Helper()
		if err := s.Take(context.Background(), checks); err != nil {
			t.Fatalf("take: %v", err)
		}
		return checks
	}
	used(0)
	const batch = 1000
	for first := 0; first < enforce.MaxReservations; first += batch {
		checks := make([]enforce.BucketCheck, batch)
		for i := range checks {
			checks[i] = reserve(first + i)
		}
		for i, check := range must(checks...) {
			if !check.Allowed {
				t.Fatalf("reservation %d was denied", first+i+1)
			}
		}
	}
	used(enforce.MaxReservations)
	before := must(checkOf(0, tier))[0].Tiers[0].Bucket.Level.Micros.Whole()
	if denied := must(reserve(enforce.MaxReservations))[0]; denied.Allowed || !denied.Exhausted {
		t.Errorf("one more: allowed %t, exhausted %t", denied.Allowed, denied.Exhausted)
	}
	if now := must(checkOf(0, tier))[0].Tiers[0].Bucket.Level.Micros.Whole(); now < before {
		t.Errorf("one more took %d tokens", before-now)
	}
	optional := reserve(enforce.MaxReservations)
	optional.Reserve.Optional = true
	if passed := must(optional)[0]; !passed.Allowed || passed.Exhausted || passed.Reserve != nil {
		t.Errorf("one that only shadow rules need: allowed %t, exhausted %t, reserves %v", passed.Allowed,
			passed.Exhausted, passed.Reserve)
	}
	others := reserve(enforce.MaxReservations)
	others.Tiers[0].Key.Tenant++
	if !must(others)[0].Allowed {
		t.Error("another tenant cannot reserve")
	}
	settled, err := s.SettleReservation(t.Context(), tier.Key.Tenant, reserve(0).Reserve.ID, enforce.Settlement{})
	if err != nil || !settled.Found {
		t.Fatalf("settle the first: %+v, %v", settled, err)
	}
	answers := must(reserve(enforce.MaxReservations), reserve(enforce.MaxReservations+1))
	if !answers[0].Allowed || answers[1].Allowed {
		t.Errorf("one was settled, and of two more are open: %t, %t", answers[0].Allowed, answers[1].Allowed)
	}
}
