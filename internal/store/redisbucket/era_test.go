package redisbucket

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var daily = enforce.Limit{Burst: 1000, Interval: (24 * time.Hour).Microseconds(), Kind: rules.KindFixedWindow}

var monthly = rules.Rule{
	Algorithm: rules.FixedWindow, Burst: 1000, Window: rules.Window{Calendar: rules.CalendarMonth},
}

// longLimits are of all algorithms that have checkpoints.
var longLimits = map[string]enforce.Limit{
	"fixed window":   daily,
	"sliding window": {Burst: 1000, Interval: (24 * time.Hour).Microseconds(), Kind: rules.KindSlidingWindow},
	"token bucket":   {Rate: 1000.0 / 86400, Burst: 1000},
	"in steps":       {Rate: 1000.0 / 86400, Burst: 1000, Interval: (24 * time.Hour).Microseconds()},
	"queue":          {Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindLeakyBucket},
	"calendar":       monthly.Limit(),
}

// ledger is a Recovery that knows the states that stores have learned, until it is told to forget.
type ledger struct {
	mu    sync.Mutex
	known map[enforce.Key]enforce.Checkpoint
	first int64 // when the first state was learned
	asked int   // buckets
	calls int
	err   error
}

func newLedger() *ledger { return &ledger{known: map[enforce.Key]enforce.Checkpoint{}} }

func (l *ledger) LearnChecks(checks []enforce.BucketCheck, err error) {
	for i := range checks {
		for j := range checks[i].Tiers {
			if tier := &checks[i].Tiers[j]; err == nil || checks[i].Answered {
				if state, ok := tier.State(); ok {
					l.Learn(tier.Key, state)
				}
			}
		}
	}
}

func (l *ledger) Learn(key enforce.Key, state enforce.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 {
		l.first = state.Stamp
	}
	l.known[key.Bounded()] = enforce.Checkpoint{Key: key.Bounded(), State: state, Stamp: state.Stamp}
}

func (l *ledger) Recover(keys []enforce.Key, before int64) (known []enforce.Checkpoint, isNew bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.asked += len(keys)
	if l.first == 0 || l.first >= before {
		return nil, true, l.err
	}
	for _, key := range keys {
		known = append(known, l.known[key])
	}
	return known, false, l.err
}

func (l *ledger) takeCalls() (calls, asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls, asked, l.calls, l.asked = l.calls, l.asked, 0, 0
	return calls, asked
}

func recovering(t testing.TB, server *devdb.Redis, l *ledger) *Store {
	t.Helper()
	s := New(client(t, server.URL(), testTimeout), testTimeout)
	s.RecoverBy(l, time.Hour)
	s.Teach(l)
	return s
}

// mustLeave takes one token, and checks how many are left.
func mustLeave(t testing.TB, s *Store, tier enforce.Tier, want int64) {
	t.Helper()
	checks := mustTake(t, s, one(tier))
	if left := checks[0].Tiers[0].Bucket.Level.Micros.Whole(); left != want || !checks[0].Allowed {
		t.Errorf("%s: %d are left (allowed: %v), want %d", tier.Key.Subject, left, checks[0].Allowed, want)
	}
}

// again takes a token once Redis answers again.
func again(t testing.TB, s *Store, tier enforce.Tier) {
	t.Helper()
	eventually(t, "Redis to answer", testTimeout, func() bool { return s.Take(t.Context(), one(tier)) == nil })
}

func TestAnEmptiedRedisGoesOnFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	losses := map[string]func(*testing.T, *devdb.Redis, *Store){
		"flushed": func(t *testing.T, _ *devdb.Redis, s *Store) {
			if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"killed": func(t *testing.T, server *devdb.Redis, _ *Store) {
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, l := devdbtest.Redis(t), newLedger()
			processes := []*Store{recovering(t, server, l), recovering(t, server, l)}
			for kind, limit := range longLimits {
				for i := range 300 {
					mustTake(t, processes[i%2], one(user(kind, limit)))
				}
			}
			lose(t, server, processes[0])
			short := user("short", enforce.Limit{Rate: 1, Burst: 100})
			for _, s := range processes {
				again(t, s, short)
			}
			l.takeCalls()
			for kind, limit := range longLimits {
				mustLeave(t, processes[1], user(kind, limit), 699)
				mustLeave(t, processes[0], user(kind, limit), 698)
				mustLeave(t, processes[0], user("other of "+kind, limit), 999)
			}
			if _, asked := l.takeCalls(); asked != 2*len(longLimits) {
				t.Errorf("%d buckets were looked up, want %d, once each", asked, 2*len(longLimits))
			}
			for kind, limit := range longLimits {
				mustLeave(t, processes[1], user(kind, limit), 697)
			}
			if _, asked := l.takeCalls(); asked != 0 {
				t.Errorf("%d buckets were looked up again", asked)
			}
		})
	}
}

func TestARedisThatWentBackGoesOnFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	processes := []*Store{recovering(t, server, l), recovering(t, server, l)}
	for kind, limit := range longLimits {
		for i := range 100 {
			mustTake(t, processes[i%2], one(user(kind, limit)))
		}
	}
	if err := processes[0].rdb.Save(t.Context()).Err(); err != nil { // what a restart reads
		t.Fatal(err)
	}
	for kind, limit := range longLimits {
		for i := range 200 {
			mustTake(t, processes[i%2], one(user(kind, limit)))
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Without a check in between: the first script is on a new connection.
	for kind, limit := range longLimits {
		mustLeave(t, processes[0], user(kind, limit), 699)
		mustLeave(t, processes[1], user(kind, limit), 698)
	}
}

func TestADurableRedisThatIsRestartedLosesNothing(t *testing.T) {
	t.Parallel()
	server, err := devdb.StartDurableRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	l := newLedger()
	s := recovering(t, server, l)
	for kind, limit := range longLimits {
		for range 100 {
			mustTake(t, s, one(user(kind, limit)))
		}
	}
	old := map[enforce.Key]enforce.Checkpoint{}
	for key, known := range l.known {
		old[key] = known
	}
	for kind, limit := range longLimits {
		for range 100 {
			mustTake(t, s, one(user(kind, limit)))
		}
	}
	l.known = old // Redis knows more than anybody
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.takeCalls()
	for kind, limit := range longLimits {
		mustLeave(t, s, user(kind, limit), 799)
		mustLeave(t, s, user(kind, limit), 798)
	}
	if _, asked := l.takeCalls(); asked != len(longLimits) {
		t.Errorf("%d buckets were looked up, want %d, once each", asked, len(longLimits))
	}
}

func TestANewInstallationLooksUpNothing(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	processes := []*Store{recovering(t, server, l), recovering(t, server, l)}
	for i := range 100 {
		mustLeave(t, processes[i%2], user(fmt.Sprint(i), daily), 999)
	}
	if calls, _ := l.takeCalls(); calls != 1 {
		t.Errorf("%d look-ups, want 1", calls)
	}
	mustLeave(t, recovering(t, server, l), user("a new process", daily), 999)
	if calls, _ := l.takeCalls(); calls != 0 {
		t.Errorf("%d look-ups by a new process", calls)
	}
}

func TestALostBucketThatNobodyKnowsHasNoAnswer(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	l.err = errors.New("the database is away")
	s := recovering(t, server, l)
	checks := one(user("42", daily))
	err := s.Take(t.Context(), checks)
	if !errors.Is(err, l.err) || !errors.Is(err, enforce.ErrNothingTaken) || checks[0].Answered {
		t.Errorf("error %v, answered: %v", err, checks[0].Answered)
	}
	short := user("42", enforce.Limit{Rate: 1, Burst: 10})
	short.Key.Rule = 2
	mustTake(t, s, one(short))
	l.err = nil
	mustLeave(t, s, user("42", daily), 999)
}
