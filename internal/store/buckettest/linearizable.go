package buckettest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const sharedBuckets = 3

// tokens is the model's state: whole tokens of each bucket, which earns too little to matter.
type tokens [sharedBuckets]int64

type taking struct {
	cost    int64
	buckets []int
}

type answer struct {
	allowed, recalled bool
	lost              bool    // no answer: the tokens may have been taken
	holds             []bool  // of each bucket
	left              []int64 // in each bucket; unknown after a recalled denial
}

// Every history of a real store must equal one of this sequential store, in an order of real time.
var allOrNothing = porcupine.NondeterministicModel{
	Init: func() []any { return []any{tokens{20, 40, 60}} },
	Step: func(state, input, output any) []any {
		before, in, out := state.(tokens), input.(taking), output.(answer)
		after, allowed := before, true
		for _, b := range in.buckets {
			allowed = allowed && before[b] >= in.cost
		}
		if allowed {
			for _, b := range in.buckets {
				after[b] -= in.cost
			}
		}
		if out.lost {
			return []any{before, after}
		}
		if out.allowed != allowed {
			return nil
		}
		for i, b := range in.buckets {
			switch {
			case out.recalled && !out.holds[i] && before[b] >= in.cost:
				return nil // it was said to lack what it had
			case !out.recalled && out.left[i] != after[b]:
				return nil
			}
		}
		return []any{after}
	},
}

// RunChecks checks that two processes' checks, behind denial caches, are linearizable; open returns a store and how to
// fail it. Each history has one tenant and one fault, because a lost answer doubles the possible orders: twelve took a
// minute.
func RunChecks(t *testing.T, stores int, open func(t *testing.T) (s enforce.ReservingBuckets, fault func())) {
	for range stores {
		s, fault := open(t)
		for tenant := rules.TenantID(1); tenant <= 10; tenant++ {
			history := record(s, tenant, fault)
			if result := porcupine.CheckOperationsTimeout(allOrNothing.ToModel(), history,
				5*time.Minute); result != porcupine.Ok {
				t.Errorf("a history of %d operations: %s", len(history), result)
			}
		}
	}
}

func record(s enforce.ReservingBuckets, tenant rules.TenantID, fault func()) []porcupine.Operation {
	const callers, each = 8, 10
	caches := []*enforce.DenialCache{enforce.NewDenialCache(nil), enforce.NewDenialCache(nil)}
	throughCache := func(process int) takeFunc {
		return func(checks []enforce.BucketCheck) error {
			return caches[process].Take(checks, func(rest []enforce.BucketCheck) error {
				return s.Take(context.Background(), rest)
			})
		}
	}
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	faulty := rand.IntN(callers * each)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(start.UnixNano()), uint64(caller)))
			for n := range each {
				in := taking{
					cost:    1 + random.Int64N(3),
					buckets: random.Perm(sharedBuckets)[:1+random.IntN(sharedBuckets)],
				}
				if caller*each+n == faulty {
					fault()
				}
				call := time.Since(start).Nanoseconds()
				out, err := in.take(throughCache(caller%len(caches)), tenant)
				if errors.Is(err, enforce.ErrNothingTaken) {
					continue
				}
				out.lost = err != nil
				op := porcupine.Operation{
					ClientId: caller, Input: in, Call: call, Output: out,
					Return: time.Since(start).Nanoseconds(),
				}
				if out.lost { // it may yet be executed
					op.Return = time.Hour.Nanoseconds()
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

type takeFunc func([]enforce.BucketCheck) error

func (in taking) take(take takeFunc, tenant rules.TenantID) (answer, error) {
	check := enforce.BucketCheck{Cost: enforce.Tokens(in.cost) * enforce.Token}
	for _, b := range in.buckets {
		check.Tiers = append(check.Tiers, enforce.Tier{
			Key:   enforce.Key{Tenant: tenant, Rule: rules.RuleID(b)},
			Limit: enforce.Limit{Rate: rules.MinRate, Burst: 20 * int64(b+1)},
		})
	}
	checks := []enforce.BucketCheck{check}
	if err := take(checks); err != nil {
		return answer{}, err
	}
	out := answer{allowed: checks[0].Allowed, recalled: checks[0].Recalled}
	for _, tier := range checks[0].Tiers {
		out.holds = append(out.holds, tier.Holds)
		out.left = append(out.left, int64((tier.Bucket.Level.Micros+enforce.Token/1000)/enforce.Token))
	}
	return out, nil
}
