package membucket

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const day = 24 * 3600 * second

var daily = enforce.Limit{Burst: 1000, Interval: day, Kind: rules.KindFixedWindow}

type longStore struct {
	*Store
	t   *testing.T
	now int64
}

func newLongStore(t *testing.T, maxBuckets int) *longStore {
	t.Helper()
	s := &longStore{t: t, now: 100*day + day/4}
	s.Store = New(Options{
		MaxBuckets: maxBuckets, CheckpointAbove: time.Hour, Clock: func() int64 { return s.now },
	})
	return s
}

func keyOf(tenant rules.TenantID, subject string) enforce.Key {
	return enforce.Key{Tenant: tenant, Rule: 7, Subject: subject}
}

func (s *longStore) take(key enforce.Key, limit enforce.Limit, tokens int64) {
	s.t.Helper()
	checks := []enforce.BucketCheck{{
		Cost: enforce.Tokens(tokens) * enforce.Token, Tiers: []enforce.Tier{{Key: key, Limit: limit}},
	}}
	if err := s.Take(s.t.Context(), checks); err != nil || !checks[0].Allowed {
		s.t.Fatalf("a check of %d: allowed is %v, %v", tokens, checks[0].Allowed, err)
	}
}

func (s *longStore) write(most int, written bool) (all []string) {
	moved := s.Moved(most)
	for i := range moved {
		state := &moved[i].State
		all = append(all, fmt.Sprintf("%s=%d", moved[i].Key.Subject, state.Level.Micros/enforce.Token))
	}
	s.Wrote(moved, written)
	return all
}

func (s *longStore) want(what string, got []string, want ...string) {
	s.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("%s: %v are written, want %v", what, got, want)
	}
}

func TestABucketIsWrittenEachTimeItMovesBy2Percent(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	key := keyOf(1, "42")
	s.take(key, daily, 19)
	s.want("19 of 1000", s.write(10, true))
	s.take(key, daily, 1)
	s.want("20 of 1000", s.write(10, false), "42=980")
	s.want("after a failure", s.write(10, true), "42=980")
	s.want("once written", s.write(10, true))
	s.take(key, daily, 19)
	s.want("39 of 1000", s.write(10, true))
	s.take(key, daily, 30)
	moved := s.Moved(10)
	s.take(key, daily, 25) // meanwhile
	s.Wrote(moved, true)
	s.want("what moved during a write", s.write(10, true), "42=906")
	_, _, _ = s.Credit(t.Context(), key, daily, enforce.Fill)
	s.want("a reset", s.write(10, true), "42=1000")
	s.now += day
	s.take(key, daily, 19)
	s.want("another window, 19 of 1000", s.write(10, true))
	s.take(keyOf(1, "back"), daily, 1)
	s.now -= day
	s.take(keyOf(1, "back"), daily, 1)
	s.want("2 of 1000 after the clock stepped back", s.write(10, true))
	s.now += day

	short := enforce.Limit{Rate: 1, Burst: 3599, Kind: rules.KindTokenBucket}
	s.take(keyOf(1, "short"), short, 3000)
	slots := enforce.Limit{Burst: 1, Interval: day, Kind: rules.KindConcurrency}
	s.take(keyOf(1, "slots"), slots, 1)
	s.want("a short limit and a list", s.write(10, true))
}

func TestWhatABucketEarnsIsNoMove(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	limit := enforce.Limit{Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindTokenBucket}
	s.take(keyOf(1, "42"), limit, 500)
	s.want("500 of 1000", s.write(10, true), "42=500")
	for range 9 { // it earns 41 or 42 an hour
		s.now += 3600 * second
		s.take(keyOf(1, "42"), limit, 2)
	}
	s.want("18 of 1000", s.write(10, true))
	s.take(keyOf(1, "42"), limit, 2)
	s.want("20 of 1000", s.write(10, true), "42=854")
}

func TestTheNewestStateOfASharedBucketIsLearned(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	key := keyOf(1, "42")
	learn := func(at, left int64) {
		state := enforce.NewState(daily, s.now+at)
		state.Level.Micros = enforce.Tokens(left) * enforce.Token
		s.Learn(key, state)
	}
	learn(5, 700)
	learn(4, 750)
	learn(5, 800)
	s.want("the newer, and the lower of one time", s.write(10, true), "42=700")
	learn(6, 690)
	s.want("1 % later", s.write(10, true))
	s.now += 10
	s.take(key, daily, 690) // the store is away
	if checks := []enforce.BucketCheck{{
		Cost: enforce.Token, Tiers: []enforce.Tier{{Key: key, Limit: daily}},
	}}; s.Take(t.Context(), checks) != nil || checks[0].Allowed {
		t.Error("the local bucket admits more than the shared one had left")
	}
	learn(20, 1000)
	s.want("a reset", s.write(10, true), "42=1000")

	full := enforce.Bucket{Level: enforce.Level{Micros: 1000 * enforce.Token}, Stamp: s.now, Limit: daily}
	low := full
	low.Level.Micros = 0
	enforce.LearnCredit(s, keyOf(1, "43"), low, full)
	s.want("a reset of a bucket that is not held", s.write(10, true), "43=1000")
	enforce.LearnCredit(s, keyOf(1, "44"), low, full)
	s.Forget(keyOf(1, "44"))
	s.want("a reset because the user is erased", s.write(10, true))

	tiers := []enforce.Tier{{Key: keyOf(1, "45"), TierAnswer: enforce.TierAnswer{Bucket: low}}}
	s.LearnChecks([]enforce.BucketCheck{{Tiers: tiers}}, errors.New("no answer"))
	s.want("a check without an answer", s.write(10, true))
	answered := enforce.BucketCheck{Tiers: tiers, TakeAnswer: enforce.TakeAnswer{Answered: true}}
	s.LearnChecks([]enforce.BucketCheck{answered}, errors.New("others have none"))
	s.want("an answered check", s.write(10, true), "45=0")
}

func TestAQuietTenantsCheckpointsDoNotWaitForAGreedyOnes(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100_000)
	for i := range 20_000 {
		s.take(keyOf(1, fmt.Sprint("invented ", i)), daily, 500)
	}
	s.take(keyOf(2, "quiet"), daily, 500)
	moved := s.Moved(1000)
	for i := range moved {
		if moved[i].Key.Tenant == 2 {
			if i > 1 {
				t.Errorf("the quiet tenant is written as number %d", i)
			}
			return
		}
	}
	t.Error("the first thousand has nothing of the quiet tenant")
}

func TestAFullMemoryCountsWhatItLoses(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 10)
	for i := range 10 {
		s.take(keyOf(1, fmt.Sprint(i)), daily, 10) // 1 %
	}
	s.take(keyOf(1, "moved"), daily, 500)
	if s.Lost() != 0 {
		t.Errorf("%d buckets count as lost, and none had moved", s.Lost())
	}
	for i := range 20 {
		s.take(keyOf(1, fmt.Sprint("more ", i)), daily, 500)
	}
	if kept := int64(len(s.Moved(100))); kept < 8 || kept+s.Lost() != 21 {
		t.Errorf("%d of 21 moved buckets are kept, and %d lost", kept, s.Lost())
	}
}

func TestAFullCopyKeepsWhatWaitsToBeWritten(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 20)
	s.isCopy = true
	learn := func(tenant rules.TenantID, subject string, left int64) {
		state := enforce.NewState(daily, s.now)
		state.Level.Micros = enforce.Tokens(left) * enforce.Token
		s.Learn(keyOf(tenant, subject), state)
	}
	learn(2, "quiet", 900)
	for i := range 100 {
		learn(1, fmt.Sprint("hardly used ", i), 990)
	}
	if s.Lost() != 0 {
		t.Errorf("%d buckets are lost beside those that need not be written", s.Lost())
	}
	for i := range 100 {
		learn(1, fmt.Sprint("invented ", i), 0)
	}
	if all := s.write(100, true); len(all) < 10 || all[0] != "quiet=900" && all[1] != "quiet=900" {
		t.Errorf("%v are written beside a greedy tenant", all)
	}
}

func TestARestoredBucketGoesOn(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	state := enforce.NewState(daily, s.now-second)
	state.Level.Micros = 300 * enforce.Token
	s.Restore(enforce.Checkpoint{Key: keyOf(1, "42"), State: state})
	s.take(keyOf(1, "42"), daily, 19)
	s.want("19 of 1000 after a restart", s.write(10, true))
	s.Restore(enforce.Checkpoint{Key: keyOf(1, "42"), State: state}) // too late
	s.take(keyOf(1, "42"), daily, 1)
	s.want("20 of 1000 after a restart", s.write(10, true), "42=280")
}

// The state has advanced since it was known.
func TestARestoredGuessIsAsOldAsWhatItWasGuessedFrom(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	s.isCopy = true
	key, known := keyOf(1, "42"), s.now-60*second
	s.Restore(enforce.Checkpoint{Key: key, State: enforce.NewState(daily, s.now), Stamp: known})
	if got, ok := s.Newest(key); !ok || got.Stamp != known {
		t.Errorf("the bucket was known at %d, want %d", got.Stamp, known)
	}
}

// One process decides alone, while others ask the store.
func TestWhatACopyDecidesIsOlderThanWhatOthersHaveLearned(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	s.isCopy = true
	key := keyOf(1, "42")
	state := enforce.NewState(daily, s.now)
	state.Level.Micros = 900 * enforce.Token
	s.Learn(key, state)
	known := s.now
	s.now += second
	s.take(key, daily, 50)
	if moved := s.Moved(1); len(moved) != 1 || moved[0].Stamp != known || moved[0].State.Stamp != s.now {
		t.Errorf("while the store is away %+v is written, want what was known at %d", moved, known)
	} else {
		s.Wrote(moved, true)
	}
	state.Level.Micros, state.Stamp = 200*enforce.Token, s.now+second
	s.Learn(key, state)
	if moved := s.Moved(1); len(moved) != 1 || moved[0].Stamp != state.Stamp || moved[0].State != state {
		t.Errorf("when it is back %+v is written", moved)
	}
}

func TestAResetThatWaitsToBeWrittenIsNotSwept(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	limit := enforce.Limit{Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindTokenBucket}
	key := keyOf(1, "42")
	s.take(key, limit, 900)
	s.want("what was used", s.write(10, true), "42=100")
	_, _, _ = s.Credit(t.Context(), key, limit, enforce.Fill)
	s.now += 2 * slack.Microseconds() // the database is slow
	for i := range 20 {
		s.take(keyOf(1, fmt.Sprint(i)), limit, 1)
	}
	s.want("the reset", s.write(10, true), "42=1000")
}

// The limit is lowered and raised: a checkpoint from before would miss the lowering.
func TestABucketThatAnEditChangedIsWritten(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	key := keyOf(1, "42")
	limit := enforce.Limit{Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindTokenBucket}
	s.take(key, limit, 10)
	s.want("10 of 1000", s.write(10, true))
	s.now += second
	lowered := enforce.Limit{Rate: 5.0 / 86400, Burst: 10, Kind: rules.KindTokenBucket, Since: s.now}
	s.now += second
	edit := enforce.Edit{Tenant: 1, Rule: 7, Limit: func(string) (enforce.Limit, bool) { return lowered, true }}
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit}); err != nil {
		t.Fatal(err)
	}
	s.want("lowered to 10", s.write(10, true), "42=10")
	raised := limit
	raised.Since = s.now
	s.now += second
	s.take(key, raised, 1)
	s.want("raised to 1000", s.write(10, true), "42=9")
}

func TestAnEditMakesACopyNoNewer(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	s.isCopy = true
	key := keyOf(1, "42")
	limit := enforce.Limit{Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindTokenBucket}
	learned := enforce.NewState(limit, s.now)
	learned.Level.Micros = 900 * enforce.Token
	s.Learn(key, learned)
	s.want("100 of 1000", s.write(10, true), "42=900")
	for name, apply := range map[string]func(lowered enforce.Limit){
		"an edit": func(lowered enforce.Limit) {
			edit := enforce.Edit{Tenant: 1, Rule: 7, Limit: func(string) (enforce.Limit, bool) { return lowered, true }}
			if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit}); err != nil {
				t.Error(err)
			}
		},
		"a look": func(lowered enforce.Limit) { s.take(key, lowered, 0) },
	} {
		s.now += second
		limit.Burst, limit.Since = limit.Burst/2, s.now
		s.now += second
		apply(limit)
		if known, ok := s.Newest(key); !ok || known.Stamp != learned.Stamp || known.State.Limit != limit {
			t.Errorf("after %s the bucket counts as known at %d, want %d: %+v", name, known.Stamp, learned.Stamp,
				known.State)
		}
	}
	s.take(key, limit, 1)
	written := s.Moved(10)
	if len(written) != 1 || written[0].Stamp != learned.Stamp {
		t.Errorf("after an edit and a check the checkpoints are %+v, want one of %d", written, learned.Stamp)
	}
}

// One process alone cannot reach the store, and others' checkpoints lack its takes.
func TestACheckpointGivesNoTakesBack(t *testing.T) {
	t.Parallel()
	s := newLongStore(t, 100)
	s.isCopy = true
	for name, limit := range map[string]enforce.Limit{
		"bucket": {Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindTokenBucket},
		"queue":  {Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindLeakyBucket},
		"fixed":  daily,
		"slides": {Burst: 1000, Interval: day, Kind: rules.KindSlidingWindow},
	} {
		key := keyOf(1, name)
		restore := func(left int64) {
			state := enforce.NewState(limit, s.now)
			state.Level.Micros = enforce.Tokens(left) * enforce.Token
			s.Restore(enforce.Checkpoint{Key: key, State: state, Stamp: s.now})
		}
		want := func(after string, left int64) {
			if known, _ := s.Newest(key); known.State.Level.Micros.Whole() != left || known.Stamp != s.now {
				t.Errorf("%s: after %s %d are left, known at %d, want %d at %d", name, after,
					known.State.Level.Micros.Whole(), known.Stamp, left, s.now)
			}
		}
		restore(900)
		s.take(key, limit, 600)
		s.now += second
		restore(800)
		want("others took 100", 300)
		s.take(key, limit, 100)
		s.now += second
		restore(700)
		want("others took 100 more", 200)
		s.now += second
		restore(50)
		want("others took the most", 50)
	}
	limit := enforce.Limit{Burst: 1000, Interval: day, Kind: rules.KindSlidingWindow}
	s.take(keyOf(1, "slides"), limit, 50)
	s.now += day - day/4 // a window later
	state := enforce.NewState(limit, s.now)
	s.Restore(enforce.Checkpoint{Key: keyOf(1, "slides"), State: state, Stamp: s.now})
	if known, _ := s.Newest(keyOf(1, "slides")); known.State.Former.Whole() != 1000 {
		t.Errorf("of the former sliding window %d are left over, want all that was taken", known.State.Former.Whole())
	}
}
