package redisbucket

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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

var longLimits = map[string]enforce.Limit{
	"fixed window":   daily,
	"sliding window": {Burst: 1000, Interval: (24 * time.Hour).Microseconds(), Kind: rules.KindSlidingWindow},
	"token bucket":   {Rate: 1000.0 / 86400, Burst: 1000},
	"in steps":       {Rate: 1000.0 / 86400, Burst: 1000, Interval: (24 * time.Hour).Microseconds()},
	"queue":          {Rate: 1000.0 / 86400, Burst: 1000, Kind: rules.KindLeakyBucket},
	"calendar":       monthly.Limit(),
}

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
					l.Learn(tier.Key.Bounded(), state)
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
	l.known[key] = enforce.Checkpoint{Key: key, State: state, Stamp: state.Stamp}
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

func mustLeave(t testing.TB, s *Store, tier enforce.Tier, want int64) {
	t.Helper()
	checks := mustTake(t, s, one(tier))
	if left := checks[0].Tiers[0].Bucket.Level.Micros.Whole(); left != want || !checks[0].Allowed {
		t.Errorf("%s: %d are left (allowed: %v), want %d", tier.Key.Subject, left, checks[0].Allowed, want)
	}
}

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
	again(t, s, user("short", enforce.Limit{Rate: 1, Burst: 100})) // it loads its file
	l.takeCalls()
	for kind, limit := range longLimits {
		mustLeave(t, s, user(kind, limit), 799)
		mustLeave(t, s, user(kind, limit), 798)
	}
	if _, asked := l.takeCalls(); asked != len(longLimits) {
		t.Errorf("%d buckets were looked up, want %d, once each", asked, len(longLimits))
	}
}

func TestAClockThatStepsBackBehindAnErasBeginLosesNothing(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	processes := []*Store{recovering(t, server, l), recovering(t, server, l)}
	now := time.Now().Truncate(24 * time.Hour).Add(time.Hour).UnixMicro()
	at := func(offset time.Duration) {
		for _, s := range processes {
			s.stamp = func() int64 { return now + offset.Microseconds() }
		}
	}
	at(0)
	for kind, limit := range longLimits {
		for range 300 {
			mustTake(t, processes[0], one(user(kind, limit)))
		}
	}
	windows := []string{"fixed window", "sliding window", "calendar"}
	for _, kind := range windows { // asked for once the clock is right again
		mustTake(t, processes[0], []enforce.BucketCheck{{
			Cost: 300 * enforce.Token, Tiers: []enforce.Tier{user("late in "+kind, longLimits[kind])},
		}})
	}
	if err := processes[0].rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	at(time.Minute)
	for kind, limit := range longLimits {
		mustLeave(t, processes[0], user(kind, limit), 699)
	}
	for back, left := range []int64{698, 696} {
		at(time.Minute - time.Duration(back+1)*10*time.Second)
		for kind, limit := range longLimits {
			mustLeave(t, processes[1], user(kind, limit), left)
			mustLeave(t, processes[0], user(kind, limit), left-1)
			mustLeave(t, processes[back], user(fmt.Sprint("new in ", kind, back), limit), 999)
		}
	}
	at(-2 * time.Hour) // another window
	mustLeave(t, processes[0], user("of the day before", daily), 999)
	at(2 * time.Minute)
	for _, kind := range windows {
		mustLeave(t, processes[0], user("late in "+kind, longLimits[kind]), 699)
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

func TestARemovedTenantLeavesNoKeyThatStays(t *testing.T) {
	t.Parallel()
	s := recovering(t, devdbtest.Redis(t), newLedger())
	staying := func() (keys []string) {
		for key := range contents(t, s.rdb) {
			if s.rdb.TTL(t.Context(), key).Val() < 0 {
				keys = append(keys, key)
			}
		}
		return keys
	}
	mustTake(t, s, one(user("42", daily)))
	if keys := staying(); len(keys) != 1 {
		t.Errorf("%q have no expiry, want the era", keys)
	}
	if err := s.ForgetTenant(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if keys := staying(); len(keys) != 0 {
		t.Errorf("%q stay", keys)
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

func TestEveryCallGoesOnFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	s := recovering(t, server, l)
	ctx := t.Context()
	fast := enforce.Limit{Rate: 2, Burst: 10_000} // long, and lent
	calls := map[string]struct {
		limit enforce.Limit
		call  func(tier enforce.Tier) error
		want  int64 // left after one more token; 300 were used
	}{
		"a look": {daily, func(tier enforce.Tier) error {
			look := one(tier)
			look[0].Look = true
			err := s.Take(ctx, look)
			if left := look[0].Tiers[0].Bucket.Level.Micros.Whole(); left != 700 {
				t.Errorf("a look finds %d, want 700", left)
			}
			return err
		}, 699},
		"a record": {daily, func(tier enforce.Tier) error {
			record := one(tier)
			record[0].Record, record[0].RecordID = true, enforce.RecordID{1}
			return s.Take(ctx, record)
		}, 698},
		"a check that reserves": {daily, func(tier enforce.Tier) error {
			check := one(tier)
			check[0].Reserve = &enforce.Reservation{ID: enforce.ReservationID{2}, Life: time.Minute}
			return s.Take(ctx, check)
		}, 698},
		"a credit": {daily, func(tier enforce.Tier) error {
			before, _, err := s.Credit(ctx, tier.Key, tier.Limit, 100*enforce.Token)
			if left := before.Level.Micros.Whole(); left != 700 {
				t.Errorf("a credit finds %d, want 700", left)
			}
			return err
		}, 799},
		"a credit with an id": {daily, func(tier enforce.Tier) error {
			_, _, _, err := s.CreditOnce(ctx, "once", tier.Key, tier.Limit, -100*enforce.Token)
			return err
		}, 599},
		"a reset": {daily, func(tier enforce.Tier) error {
			_, _, err := s.Credit(ctx, tier.Key, tier.Limit, enforce.Fill)
			return err
		}, 999},
		"a lease": {fast, func(tier enforce.Tier) error {
			leases := []enforce.Lease{{Key: tier.Key, Limit: fast, Ask: enforce.Ask{Want: 50 * enforce.Token}}}
			err := s.Lease(ctx, leases)
			if left := leases[0].Grant.Level.Micros.Whole() + leases[0].Grant.Amount.Whole(); !leases[0].Answered ||
				left < 9700 || left > 9800 {
				t.Errorf("a lease finds %d, want 9700", left)
			}
			return err
		}, 0},
	}
	for name, c := range calls {
		for range 300 {
			mustTake(t, s, one(user(name, c.limit)))
		}
	}
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range calls {
		if err := c.call(user(name, c.limit)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.want > 0 {
			mustLeave(t, s, user(name, c.limit), c.want)
		}
	}
}

// An older state of Redis still has the reservation.
func TestASettlementGoesOnFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	s := recovering(t, server, l)
	for _, subject := range []string{"42", strings.Repeat("long", 50)} {
		tier := user(subject, daily)
		check := enforce.BucketCheck{
			Cost: 10 * enforce.Token, Tiers: []enforce.Tier{tier},
			Reserve: &enforce.Reservation{ID: enforce.ReservationID{byte(len(subject))}, Life: time.Minute},
		}
		mustTake(t, s, []enforce.BucketCheck{check})
		if err := s.rdb.Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			mustTake(t, s, one(tier))
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		settled, err := s.SettleReservation(t.Context(), 1, check.Reserve.ID, enforce.Settlement{Cancel: true})
		if err != nil || !settled.Found {
			t.Fatalf("settled %+v, %v", settled, err)
		}
		mustLeave(t, s, tier, 899)
	}
}

func TestASettlementSurvivesTheLossOfRedis(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	s := recovering(t, server, l)
	for name, limit := range longLimits {
		for _, settled := range []int64{1, 250} {
			tier := user(fmt.Sprint(name, settled), limit)
			check := enforce.BucketCheck{
				Cost: 90 * enforce.Token, Tiers: []enforce.Tier{tier},
				Reserve: &enforce.Reservation{ID: enforce.ReservationID{byte(settled)}, Life: time.Minute},
			}
			mustTake(t, s, []enforce.BucketCheck{check})
			if _, err := s.SettleReservation(t.Context(), 1, check.Reserve.ID, enforce.Settlement{
				Cost: enforce.Tokens(settled) * enforce.Token, HasCost: true,
			}); err != nil {
				t.Fatal(err)
			}
			if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			mustLeave(t, s, tier, limit.Burst-settled-1)
		}
	}
}

// A refund may be in Redis only, so the key stays until a missing one no longer counts as lost.
func TestARefundDoesNotMakeABucketLookLost(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	s := recovering(t, server, l)
	tier := user("42", longLimits["token bucket"])
	mustTake(t, s, one(tier))
	if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	check := enforce.BucketCheck{
		Cost: 900 * enforce.Token, Tiers: []enforce.Tier{tier},
		Reserve: &enforce.Reservation{ID: enforce.ReservationID{1}, Life: time.Minute},
	}
	mustTake(t, s, []enforce.BucketCheck{check})
	settled, err := s.SettleReservation(t.Context(), 1, check.Reserve.ID, enforce.Settlement{Cancel: true})
	if err != nil || !settled.Found {
		t.Fatalf("settled %+v, %v", settled, err)
	}
	if life := s.rdb.PTTL(t.Context(), s.lostBucketOf(tier.Key, tier.Limit).key).Val(); life < 47*time.Hour {
		t.Errorf("the bucket is forgotten in %v, which is before two times to refill", life)
	}
}

// Two tenants have more buckets than fit a script, and one each that many checks share.
func TestALargeCallWhoseBucketsAreLostIsAnswered(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	s := recovering(t, server, l)
	tierOf := func(tenant rules.TenantID, rule rules.RuleID, subject string) enforce.Tier {
		return enforce.Tier{Key: enforce.Key{Tenant: tenant, Rule: rule, Subject: subject}, Limit: daily}
	}
	used := map[rules.TenantID]int64{1: 1, 2: 300}
	for tenant, tokens := range used {
		for range tokens {
			mustTake(t, s, one(tierOf(tenant, 1, "shared")))
		}
	}
	if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	l.takeCalls()
	var checks []enforce.BucketCheck
	for i := range 300 {
		tenant := rules.TenantID(1 + i%2)
		checks = append(checks, enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{
			tierOf(tenant, 1, "shared"), tierOf(tenant, 2, fmt.Sprint("user ", i)),
		}})
	}
	mustTake(t, s, checks)
	for _, check := range checks[len(checks)-2:] {
		shared := check.Tiers[0]
		left, want := shared.Bucket.Level.Micros.Whole(), 1000-used[shared.Key.Tenant]-150
		if left != want {
			t.Errorf("tenant %d has %d left, want %d", shared.Key.Tenant, left, want)
		}
	}
	if _, asked := l.takeCalls(); asked < 302 || asked > 320 {
		t.Errorf("%d buckets were looked up, want each once", asked)
	}
}

func TestAnEditOutlivesALoss(t *testing.T) {
	t.Parallel()
	edits := map[string]func(limit *enforce.Limit){
		"raised":  func(limit *enforce.Limit) { limit.Burst, limit.Rate = 2*limit.Burst, 2*limit.Rate },
		"lowered": func(limit *enforce.Limit) { limit.Burst, limit.Rate = limit.Burst/2, limit.Rate/2 },
		"slower":  func(limit *enforce.Limit) { limit.Rate /= 2 },
	}
	now := int64(1_800_000_000_000_000)
	var stores []*Store
	for range 2 {
		s := recovering(t, devdbtest.Redis(t), newLedger())
		s.stamp = func() int64 { return now }
		stores = append(stores, s)
	}
	type edited struct {
		name  string
		tier  enforce.Tier
		limit enforce.Limit // after the edit
	}
	var all []edited
	for kind, limit := range longLimits {
		for name, edit := range edits {
			tier := user(kind+" "+name, limit)
			edit(&limit)
			limit.Since = now + time.Hour.Microseconds()
			all = append(all, edited{kind + " " + name, tier, limit})
			for _, s := range stores {
				check := one(tier)
				check[0].Cost = 400 * enforce.Token
				mustTake(t, s, check)
			}
		}
	}
	now += 2 * time.Hour.Microseconds()
	if err := stores[0].rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].tier.Limit = all[i].limit
		var left [2]enforce.Level
		for n, s := range stores {
			left[n] = mustTake(t, s, one(all[i].tier))[0].Tiers[0].Bucket.Level
		}
		if left[0] != left[1] {
			t.Errorf("%s: %v are left after a loss, and %v without", all[i].name, left[0], left[1])
		}
	}
}

func TestAnEditThatMakesALimitLongForgetsNothing(t *testing.T) {
	t.Parallel()
	now := int64(1_800_000_000_000_000)
	stores := [2]*Store{recovering(t, devdbtest.Redis(t), newLedger())}
	_, stores[1] = generous(t)
	kinds := slices.Sorted(maps.Keys(longLimits))
	tiers := make([]enforce.Tier, len(kinds))
	for i, kind := range kinds {
		short := longLimits[kind]
		short.Rate *= 24 * 60
		if short.Interval != 0 {
			short.Interval = time.Minute.Microseconds()
		}
		tiers[i] = user(kind, short)
		tiers[i].Key.Rule = rules.RuleID(i + 1)
	}
	for _, s := range stores {
		s.stamp = func() int64 { return now }
		for _, tier := range tiers {
			mustTake(t, s, []enforce.BucketCheck{{Cost: 990 * enforce.Token, Tiers: []enforce.Tier{tier}}})
		}
	}
	edited := now + time.Second.Microseconds()
	now = edited + time.Second.Microseconds()
	for i, kind := range kinds {
		limit := longLimits[kind]
		limit.Since = edited
		tiers[i].Limit = limit
		edit := enforce.Edit{Tenant: 1, Rule: tiers[i].Key.Rule, ID: kind, Limit: func(string) (enforce.Limit, bool) {
			return limit, true
		}}
		for _, s := range stores {
			if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit}); err != nil {
				t.Fatal(err)
			}
		}
	}
	now += time.Hour.Microseconds()
	for i, kind := range kinds {
		var left [2]enforce.Level
		for n, s := range stores {
			if life := ttlOf(t, s, tiers[i]); life < 8*time.Hour {
				t.Errorf("%s, store %d: the bucket is forgotten in %v, which is before it is full", kind, n, life)
			}
			left[n] = mustTake(t, s, one(tiers[i]))[0].Tiers[0].Bucket.Level
		}
		if left[0].Micros != left[1].Micros || left[0].Micros.Whole() > 500 { // a fraction is rounded at each look
			t.Errorf("%s: %v are left, want %v as without eras", kind, left[0], left[1])
		}
	}
}

func TestErasCostNoRoundTrip(t *testing.T) {
	t.Parallel()
	server, l := devdbtest.Redis(t), newLedger()
	s, plain := recovering(t, server, l), New(client(t, server.URL(), testTimeout), testTimeout)
	short := user("short", enforce.Limit{Rate: 1, Burst: 1000})
	short.Key.Rule = 2
	long := user("long", daily)
	for _, tier := range []enforce.Tier{short, long} {
		mustTake(t, s, one(tier))
		mustTake(t, plain, one(short))
	}
	script := func(s *Store, tier enforce.Tier) (args int) {
		b := takeScript{}
		b.reset(s, true)
		b.add(&one(tier)[0])
		return len(b.command(t.Context(), nil, false, 0).Args())
	}
	if ours, theirs := script(s, short), script(plain, short); ours != theirs {
		t.Errorf("a check without a long limit sends %d arguments, want %d", ours, theirs)
	}
	stats := func() int {
		info, err := s.rdb.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, name := range []string{"evalsha", "eval", "info"} {
			if _, rest, ok := strings.Cut(info, "cmdstat_"+name+":calls="); ok {
				digits, _, _ := strings.Cut(rest, ",")
				n, _ := strconv.Atoi(digits)
				total += n
			}
		}
		return total
	}
	l.takeCalls()
	before := stats()
	for range 100 {
		mustTake(t, s, one(long))
	}
	if sent := stats() - before; sent != 100+1 { // and one INFO of this test
		t.Errorf("100 checks are %d commands", sent)
	}
	if calls, _ := l.takeCalls(); calls != 0 {
		t.Errorf("%d look-ups while nothing is lost", calls)
	}
}

func TestASlotThatMovesBeginsAnEra(t *testing.T) {
	t.Parallel()
	nodes, l := startCluster(t, 2), newLedger()
	s := New(client(t, clusterURL(nodes), testTimeout), testTimeout)
	s.RecoverBy(l, time.Hour)
	s.Teach(l)
	tier := user("42", daily)
	for range 300 {
		mustTake(t, s, one(tier))
	}
	slot := nodes[0].slotOf(t, tier.Key.Tenant)
	at := slot * 2 / 16384
	moveSlot(t, nodes, slot, at, 1-at)
	l.takeCalls()
	again(t, s, tier)
	mustLeave(t, s, tier, 698)
	mustLeave(t, s, user("new", daily), 999)
	if _, asked := l.takeCalls(); asked != 2 {
		t.Errorf("%d buckets were looked up, want 2, once each", asked)
	}
}

func TestAFailoverToAnEmptyReplicaGoesOnFromWhatIsKnown(t *testing.T) {
	t.Parallel()
	group, err := devdb.StartRedisGroup(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Kill)
	l := newLedger()
	s := New(client(t, group.URL(), testTimeout), testTimeout)
	s.RecoverBy(l, time.Hour)
	s.Teach(l)
	tier := user("42", daily)
	again(t, s, tier)
	for range 299 {
		mustTake(t, s, one(tier))
	}
	replica, sentinel := client(t, group.Replica.URL(), testTimeout), client(t, group.Sentinel.URL(), testTimeout)
	eventually(t, "Sentinel to know the replica", testTimeout, func() bool {
		return strings.Contains(sentinel.Info(t.Context(), "sentinel").Val(), "slaves=1")
	})
	eventually(t, "the replica to have the bucket", testTimeout, func() bool {
		return replica.Exists(t.Context(), "{s1}1:42").Val() > 0
	})
	group.Master.Kill()
	for _, command := range [][]any{{"config", "set", "replica-read-only", "no"}, {"flushall"}} {
		if err := replica.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	again(t, s, user("short", enforce.Limit{Rate: 1, Burst: 100}))
	mustLeave(t, s, tier, 699)
}
