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

// tokens is the state of the model: what each bucket holds, in whole tokens. The buckets of the tests
// earn nothing that would show.
type tokens [sharedBuckets]int64

// taking is the input of one operation: a check of some of the buckets.
type taking struct {
	cost    int64
	buckets []int
}

// answer is its output.
type answer struct {
	allowed, recalled bool
	lost              bool    // there was none: the tokens were taken, or not
	holds             []bool  // of each bucket
	left              []int64 // in each bucket; not told by a recalled denial
}

// allOrNothing is a sequential store: what every history of a real one must be equal to, in some order
// in which no operation comes before one that had ended when it began.
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

// RunChecks checks that checks of several callers in two processes, each with a denial cache, are linearizable. open returns a
// store and what makes it fail. Each store has several histories, of a tenant each. A check whose answer is lost doubles the
// orders that a history may have had, so a history is short and has one fault: the search through one with twelve lost answers
// took a minute, and through long ones more than five.
func RunChecks(t *testing.T, stores int, open func(t *testing.T) (s enforce.ReservingBuckets, fault func())) {
	for range stores {
		s, fault := open(t)
		for tenant := rules.TenantID(1); tenant <= 10; tenant++ {
			history := record(s, tenant, fault)
			if result := porcupine.CheckOperationsTimeout(allOrNothing.ToModel(), history, 5*time.Minute); result != porcupine.Ok {
				t.Errorf("a history of %d operations: %s", len(history), result)
			}
		}
	}
}

// record lets several callers in two processes take from the same buckets, and returns what they did.
// At one moment it lets something go wrong, which may cost each caller an answer.
func record(s enforce.ReservingBuckets, tenant rules.TenantID, fault func()) []porcupine.Operation {
	const callers, each = 8, 10
	caches := []*enforce.DenialCache{enforce.NewDenialCache(s, nil), enforce.NewDenialCache(s, nil)}
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	faulty := rand.IntN(callers * each)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(start.UnixNano()), uint64(caller)))
			for n := range each {
				in := taking{cost: 1 + random.Int64N(3), buckets: random.Perm(sharedBuckets)[:1+random.IntN(sharedBuckets)]}
				if caller*each+n == faulty {
					fault()
				}
				call := time.Since(start).Nanoseconds()
				out, err := in.takeFrom(caches[caller%len(caches)], tenant)
				if errors.Is(err, enforce.ErrNothingTaken) {
					continue
				}
				out.lost = err != nil
				op := porcupine.Operation{ClientId: caller, Input: in, Call: call, Output: out, Return: time.Since(start).Nanoseconds()}
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

// takeFrom runs the check on a store.
func (in taking) takeFrom(store enforce.Buckets, tenant rules.TenantID) (answer, error) {
	check := enforce.BucketCheck{Cost: enforce.Tokens(in.cost) * enforce.Token}
	for _, b := range in.buckets {
		check.Tiers = append(check.Tiers, enforce.Tier{
			Key:   enforce.Key{Tenant: tenant, Rule: rules.RuleID(b)},
			Limit: enforce.Limit{Rate: rules.MinRate, Burst: 20 * int64(b+1)},
		})
	}
	checks := []enforce.BucketCheck{check}
	if err := store.Take(context.Background(), checks); err != nil {
		return answer{}, err
	}
	out := answer{allowed: checks[0].Allowed, recalled: checks[0].Recalled}
	for _, tier := range checks[0].Tiers {
		out.holds = append(out.holds, tier.Holds)
		// A bucket earns a millionth a second.
		out.left = append(out.left, int64((tier.Bucket.Level.Micros+enforce.Token/1000)/enforce.Token))
	}
	return out, nil
}
