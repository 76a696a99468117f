package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/combine"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/membucket"
	"github.com/sluicegate/sluice/internal/rules"
)

// spreadTier is a bucket of spread tenant 1: of a user, or of a rule that many share.
func spreadTier(rule rules.RuleID, subject string, limit enforce.Limit) enforce.Tier {
	key := enforce.Key{Tenant: 1, Rule: rule, Subject: subject, Shard: uint8(rule%rules.Shards) + 1}
	if subject != "" {
		key.Shard = rules.ShardOf(subject)
	}
	return enforce.Tier{Key: key, Limit: limit}
}

// settleLoans reports what is lent at once.
func settleLoans(s *Store) { s.Close() }

// TestASpreadCheckIsDecidedAsIfItsBucketsWereTogether compares random checks, one after the other, with buckets in memory.
func TestASpreadCheckIsDecidedAsIfItsBucketsWereTogether(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	memory := membucket.New(membucket.Options{})
	random := rand.New(rand.NewPCG(1, 2))
	window := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 9, Interval: time.Hour.Microseconds()}
	allowed, denied := 0, 0
	for n := range 600 {
		user := fmt.Sprint("user-", random.IntN(6))
		check := enforce.BucketCheck{Cost: enforce.Token * enforce.Tokens(random.IntN(4)), Look: random.IntN(10) == 0}
		check.Tiers = []enforce.Tier{
			spreadTier(1, "", enforce.Limit{Rate: rules.MinRate, Burst: 200}),
			spreadTier(2, fmt.Sprint("198.51.100.", random.IntN(5)), enforce.Limit{Rate: rules.MinRate, Burst: 60}),
			spreadTier(3, user, enforce.Limit{Rate: rules.MinRate, Burst: 40}),
			spreadTier(4, "", enforce.Limit{Rate: rules.MinRate, Burst: 150}),
		}
		check.Tiers[3].Shadow = true
		check.Mixed = random.IntN(4) == 0
		for i := range check.Tiers {
			check.Tiers[i].Cost = min(check.Cost, enforce.Token*enforce.Tokens(random.IntN(4)))
		}
		if random.IntN(3) == 0 {
			check.Tiers = append(check.Tiers, spreadTier(5, user, window))
			check.Tiers[4].Cost = check.Cost
		}
		random.Shuffle(len(check.Tiers), func(i, j int) { check.Tiers[i], check.Tiers[j] = check.Tiers[j], check.Tiers[i] })
		both := []enforce.BucketCheck{check, check}
		want, got := &both[0], &both[1]
		want.Tiers, got.Tiers = slices.Clone(check.Tiers), slices.Clone(check.Tiers)
		if err := errors.Join(memory.Take(t.Context(), both[:1]), s.Take(context.Background(), both[1:])); err != nil {
			t.Fatal(err)
		}
		settleLoans(s)
		if got.Allowed != want.Allowed {
			t.Fatalf("check %d is allowed: %t, want %t", n, got.Allowed, want.Allowed)
		}
		for i := range want.Tiers {
			if w, g := &want.Tiers[i], &got.Tiers[i]; w.Holds != g.Holds || w.Bucket.Level.Micros.Whole() != g.Bucket.Level.Micros.Whole() {
				t.Fatalf("check %d: tier %d of rule %d holds the cost: %t at %s, want %t at %s", n, i, w.Key.Rule,
					g.Holds, g.Bucket.Level.Micros, w.Holds, w.Bucket.Level.Micros)
			}
		}
		if want.Allowed {
			allowed++
		} else {
			denied++
		}
	}
	if allowed < 50 || denied < 50 {
		t.Errorf("%d were allowed and %d denied: that tests little", allowed, denied)
	}
}

// TestABatchOfSpreadChecksIsDecidedInOrder: what is borrowed for a batch is given to its first checks.
func TestABatchOfSpreadChecksIsDecidedInOrder(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	checks := make([]enforce.BucketCheck, 40)
	for i := range checks {
		checks[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{
			spreadTier(1, "", enforce.Limit{Rate: rules.MinRate, Burst: 25}), spreadTier(2, fmt.Sprint(i%8), still),
		}}
	}
	for i, check := range mustTake(t, s, checks) {
		if !check.Answered || check.Allowed != (i < 25) {
			t.Errorf("check %d: answered %t, allowed %t", i, check.Answered, check.Allowed)
		}
	}
	settleLoans(s)
	for _, check := range mustTake(t, s, []enforce.BucketCheck{{Look: true, Tiers: []enforce.Tier{checks[0].Tiers[0], checks[39].Tiers[1]}}}) {
		if left := check.Tiers[0].Bucket.Level.Micros.Whole(); left != 0 {
			t.Errorf("%d tokens are left of the shared bucket", left)
		}
		if left := check.Tiers[1].Bucket.Level.Micros.Whole(); left != still.Burst-3 {
			t.Errorf("a user who was denied twice has %d left of %d", left, still.Burst)
		}
	}
}

// TestABatchOfSpreadChecksTellsWhatEachLeaves: later checks have not taken yet, and tokens that are back need not be waited for.
func TestABatchOfSpreadChecksTellsWhatEachLeaves(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	shared := spreadTier(1, "", enforce.Limit{Rate: rules.MinRate, Burst: 10})
	window := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 1, Interval: 24 * time.Hour.Microseconds()}
	of := func(cost int64, others ...enforce.Tier) enforce.BucketCheck {
		return enforce.BucketCheck{Cost: enforce.Tokens(cost) * enforce.Token, Tiers: append([]enforce.Tier{shared}, others...)}
	}
	checks := mustTake(t, s, []enforce.BucketCheck{
		of(3, spreadTier(2, "42", still)), of(8, spreadTier(2, "43", still)), of(2, spreadTier(2, "44", still)),
		of(4, spreadTier(2, "45", still), spreadTier(3, "45", window)), // its window denies it
		of(3, spreadTier(2, "46", still)),
	})
	for i, want := range []struct {
		isAllowed bool
		left      int64
	}{{true, 7}, {false, 7}, {true, 5}, {false, 5}, {false, 1}} {
		check := &checks[i]
		tier := &check.Tiers[0]
		if left := tier.Bucket.Level.Micros.Whole(); check.Allowed != want.isAllowed || left != want.left {
			t.Errorf("check %d: allowed %t, and %d tokens are left of the shared bucket; want %+v", i, check.Allowed, left, want)
		}
		switch wait, _ := tier.Wait(check); {
		case i == 1 && wait < 24*time.Hour, i == 4 && (wait == 0 || wait > time.Second):
			t.Errorf("check %d may come again after %v", i, wait)
		}
	}
}

// TestADeniedSpreadCheckTakesNothing, wherever it is denied or fails: here by a bucket of which it takes nothing.
func TestADeniedSpreadCheckTakesNothing(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	window := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 9, Interval: 24 * time.Hour.Microseconds()}
	slow := enforce.Limit{Rate: rules.MinRate, Burst: 9}
	now := float64(time.Now().UnixMicro())
	for name, value := range map[string]string{
		"denied": state(1, -1, 0, now, slow.Rate, 9, 0), "not answered": state(4, 0, 0, now, slow.Rate, 9, 0),
	} {
		looked, taken, borrowed := spreadTier(2, "empty", slow), spreadTier(3, name, window), spreadTier(4, name, slow)
		if err := s.rdb.Set(t.Context(), keyText(looked.Key), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		taken.Cost = enforce.Token
		for _, tiers := range [][]enforce.Tier{{looked, taken}, {looked, taken, borrowed}} {
			for i := range tiers[1:] {
				tiers[1+i].Cost = enforce.Token
			}
			checks := []enforce.BucketCheck{{Cost: enforce.Token, Mixed: true, Tiers: tiers}}
			err := s.Take(context.Background(), checks)
			if isAnswered := name == "denied"; checks[0].Answered != isAnswered || checks[0].Allowed || isAnswered != (err == nil) {
				t.Fatalf("%s: answered %t, allowed %t, %v", name, checks[0].Answered, checks[0].Allowed, err)
			}
			if err != nil && !errors.Is(err, enforce.ErrNothingTaken) {
				t.Errorf("%s: %v", name, err)
			}
			settleLoans(s)
			for _, tier := range tiers[1:] {
				look := mustTake(t, s, []enforce.BucketCheck{{Look: true, Tiers: []enforce.Tier{tier}}})[0]
				if left := look.Tiers[0].Bucket.Level.Micros.Whole(); left != 9 {
					t.Errorf("%s: of rule %d %d tokens of 9 are left", name, tier.Key.Rule, left)
				}
			}
		}
	}
}

// TestASpreadCheckTakesOneRoundTrip: no master waits for the answer of another. Else the first one asked would wait here.
func TestASpreadCheckTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	check := enforce.BucketCheck{Look: true, Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, "", still), spreadTier(2, "42", still)}}
	first := check.Tiers[0].Key
	eventually(t, "the masters to be known", patience, func() bool {
		mustTake(t, s, []enforce.BucketCheck{check})
		return s.nodeOf(first) != s.cluster.router
	})
	for i := 0; i < 100 && s.nodeOf(check.Tiers[1].Key) == s.nodeOf(first); i++ {
		check.Tiers[1] = spreadTier(2, fmt.Sprint(i), still)
	}
	both := make(chan struct{})
	var asked atomic.Int32
	for i := range check.Tiers {
		node := s.nodeOf(check.Tiers[i].Key)
		send := node.combiner.Send
		once := sync.OnceFunc(func() {
			if asked.Add(1) == 2 {
				close(both)
			}
		})
		node.combiner.Send = func(b *combine.Batch) {
			once()
			select {
			case <-both:
			case <-time.After(patience / 2):
				t.Error("a master was asked that waits for another")
			}
			send(b)
		}
	}
	check.Look = false
	if !mustTake(t, s, []enforce.BucketCheck{check})[0].Allowed {
		t.Error("the check is denied")
	}
}

// TestLoansOfOneBucketInOneCallKnowOfEachOther: they are lent one after the other.
func TestLoansOfOneBucketInOneCallKnowOfEachOther(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 1)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 3}
	two := enforce.Lease{Key: spreadTier(1, "", limit).Key, Limit: limit, Ask: enforce.Ask{Need: 2 * enforce.Token, Want: 2 * enforce.Token, Loan: true}}
	leases := []enforce.Lease{two, two}
	if err := s.leaseApart(leases, time.Now()); err != nil {
		t.Fatal(err)
	}
	if first, second := leases[0].Grant, leases[1].Grant; first.Amount != 2*enforce.Token || !second.Refused || second.Out != 2*enforce.Token {
		t.Errorf("of 3 tokens the first borrows %s, and the second %s beside %s", first.Amount, second.Amount, second.Out)
	}
}

// TestTheWaitForASpreadBucketKnowsThatLoansAreReported: what another process has borrowed for checks is about to count as spent.
func TestTheWaitForASpreadBucketKnowsThatLoansAreReported(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	limit := enforce.Limit{Rate: 1, Burst: 1000} // a token in a second
	user := spreadTier(2, "42", limit)
	asked := []enforce.Lease{{Key: user.Key, Limit: limit, Ask: enforce.Ask{Need: 1000 * enforce.Token, Want: 1000 * enforce.Token, Loan: true}}}
	if err := s.leaseApart(asked, time.Now()); err != nil || asked[0].Grant.Refused {
		t.Fatalf("%+v, %v", asked[0].Grant, err)
	}
	check := mustTake(t, s, []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, "", still), user}}})[0]
	if wait, _ := check.Tiers[1].Wait(&check); check.Allowed || wait > time.Second {
		t.Errorf("allowed: %t; else after %v", check.Allowed, wait)
	}
}

func TestWhatASpreadCheckCannotDoIsRefusedAndTakesNothing(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	window := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 9, Interval: time.Hour.Microseconds()}
	for name, check := range map[string]enforce.BucketCheck{
		"windows of two users": {Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, "a", window), spreadTier(2, "b", window)}},
		"a reservation": {
			Cost: enforce.Token, Reserve: &enforce.Reservation{Life: time.Minute},
			Tiers: []enforce.Tier{spreadTier(1, "a", still), spreadTier(2, "b", still)},
		},
	} {
		checks := []enforce.BucketCheck{check, {Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(3, name, still)}}}
		if err := s.Take(context.Background(), checks); !errors.Is(err, enforce.ErrNothingTaken) || checks[0].Answered || !checks[1].Answered {
			t.Errorf("%s: %v, answered %t, and the other check %t", name, err, checks[0].Answered, checks[1].Answered)
		}
	}
}

// TestOneServerDecidesASpreadCheckInOneScript: where all buckets are on one server nothing need be borrowed.
func TestOneServerDecidesASpreadCheckInOneScript(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	mustCheck(t, s)
	checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, "", still), spreadTier(2, "42", still)}}}
	mustTake(t, s, checks)
	before := scriptCalls(t, s)
	if !mustTake(t, s, checks)[0].Allowed || scriptCalls(t, s) != before+1 {
		t.Errorf("%d scripts, want one", scriptCalls(t, s)-before)
	}
}

// TestSpreadBucketsAreSettledAfterAnEdit: wherever they are.
func TestSpreadBucketsAreSettledAfterAnEdit(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	slow := enforce.Limit{Rate: rules.MinRate, Burst: 10, Since: 1}
	var checks []enforce.BucketCheck
	for i := range 30 {
		checks = append(checks, enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, fmt.Sprint(i), still)}})
	}
	mustTake(t, s, checks)
	edit := enforce.Edit{Tenant: 1, IsSpread: true, Rule: 1, ID: "1", Limit: func(string) (enforce.Limit, bool) { return slow, true }}
	if err := s.Settle(t.Context(), []enforce.Edit{edit}); err != nil {
		t.Fatal(err)
	}
	for i := range checks {
		checks[i].Look = true
	}
	for i, check := range mustTake(t, s, checks) { // by the former limit: the bucket has the later one
		if got := check.Tiers[0].Bucket.Limit; got.Burst != slow.Burst {
			t.Errorf("bucket %d has a burst of %d", i, got.Burst)
		}
	}
}

// admission is a check that passed: when it was admitted is known only to lie between the two.
type admission struct{ asked, decided time.Time }

// spreadLoad is callers of several processes that share a limit of a spread tenant, beside limits of their own.
type spreadLoad struct {
	stop     chan struct{}
	callers  sync.WaitGroup
	mu       sync.Mutex
	admitted []admission
	denied   atomic.Int64
	failed   atomic.Int64
}

const spreadRate, spreadBurst = 50, 50 // far less than is asked, however busy the machine is

func startSpreadLoad(stores ...enforce.Buckets) *spreadLoad {
	l := &spreadLoad{stop: make(chan struct{})}
	for _, s := range stores {
		for caller := range 8 {
			l.callers.Go(func() { l.take(s, fmt.Sprint("user-", caller)) })
		}
	}
	return l
}

func (l *spreadLoad) take(s enforce.Buckets, user string) {
	pace := time.NewTicker(4 * time.Millisecond) // 16 callers ask for 4000 a second
	defer pace.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-pace.C:
		}
		checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{
			spreadTier(2, user, enforce.Limit{Rate: 1e6, Burst: 1e6}), spreadTier(1, "", enforce.Limit{Rate: spreadRate, Burst: spreadBurst}),
		}}}
		asked := time.Now()
		switch err := s.Take(context.Background(), checks); {
		case err != nil && !checks[0].Answered:
			l.failed.Add(1)
		case checks[0].Allowed:
			l.mu.Lock()
			l.admitted = append(l.admitted, admission{asked, time.Now()})
			l.mu.Unlock()
		default:
			l.denied.Add(1)
		}
	}
}

func (l *spreadLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.admitted)
}

// mustKeepTheLimit replays what was admitted through one bucket.
func (l *spreadLoad) mustKeepTheLimit(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.callers.Wait()
	slices.SortFunc(l.admitted, func(a, b admission) int { return a.decided.Compare(b.decided) })
	level, lowest, longest := float64(spreadBurst), float64(spreadBurst), time.Duration(0)
	at := l.admitted[0].decided
	for _, one := range l.admitted {
		level = min(spreadBurst, level+spreadRate*one.decided.Sub(at).Seconds()) - 1
		lowest, at, longest = min(lowest, level), one.decided, max(longest, one.decided.Sub(one.asked))
	}
	slack := 1 + spreadRate*longest.Seconds()
	t.Logf("%d admitted, %d denied, %d failed; the bucket's lowest level is %.1f, and %.1f is below what can be told",
		len(l.admitted), l.denied.Load(), l.failed.Load(), lowest, slack)
	if lowest < -slack {
		t.Errorf("one bucket would lack %.1f tokens", -lowest)
	}
	if l.denied.Load() == 0 {
		t.Error("nothing was denied: the load was too small to test anything")
	}
}

// TestASharedLimitOfASpreadTenantIsKeptWhileSlotsMove: the slot of the shared bucket moves from master to master under load.
func TestASharedLimitOfASpreadTenantIsKeptWhileSlotsMove(t *testing.T) {
	t.Parallel()
	const budget = time.Second
	nodes := startCluster(t, 3)
	load := startSpreadLoad(New(client(t, clusterURL(nodes), budget), budget), New(client(t, clusterURL(nodes), budget), budget))
	key := keyText(spreadTier(1, "", still).Key)
	slot := nodes[0].slotOfKey(t, key)
	at := slot * 3 / 16384
	for range 4 {
		before := load.count()
		eventually(t, "the load to be admitted", patience, func() bool { return load.count() > before+25 })
		to := (at + 1) % 3
		moveSlot(t, nodes, slot, at, to)
		at = to
	}
	before := load.count()
	eventually(t, "the load to be admitted after the moves", patience, func() bool { return load.count() > before+25 })
	load.mustKeepTheLimit(t)
}

// moveSlot moves a slot with its keys from one master to another, as redis-cli does.
func moveSlot(t *testing.T, nodes []*clusterNode, slot, from, to int) {
	t.Helper()
	ids := make([]string, len(nodes))
	for i, node := range nodes {
		var err error
		if ids[i], err = node.direct.ClusterMyID(t.Context()).Result(); err != nil {
			t.Fatal(err)
		}
	}
	nodes[to].mustDo(t, "cluster", "setslot", slot, "importing", ids[from])
	nodes[from].mustDo(t, "cluster", "setslot", slot, "migrating", ids[to])
	host, port, _ := strings.Cut(nodes[to].addr, ":")
	for {
		keys, err := nodes[from].direct.ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			nodes[from].mustDo(t, "migrate", host, port, key, 0, 5000)
		}
	}
	for _, node := range append([]*clusterNode{nodes[to]}, nodes...) {
		node.mustDo(t, "cluster", "setslot", slot, "node", ids[to])
	}
}

// TestASharedLimitOfASpreadTenantIsKeptWhileAMasterIsAway: the master of some users, and then that of the shared bucket.
func TestASharedLimitOfASpreadTenantIsKeptWhileAMasterIsAway(t *testing.T) {
	t.Parallel()
	const budget = 250 * time.Millisecond
	nodes := startCluster(t, 3)
	s := New(client(t, clusterURL(nodes), budget), budget)
	load := startSpreadLoad(s, New(client(t, clusterURL(nodes), budget), budget))
	shared := nodes[0].slotOfKey(t, keyText(spreadTier(1, "", still).Key)) * 3 / 16384
	for _, victim := range []int{(shared + 1) % 3, shared} {
		before := load.count()
		eventually(t, "the load to be admitted", patience, func() bool { return load.count() > before+25 })
		if err := nodes[victim].freeze(); err != nil {
			t.Fatal(err)
		}
		failed := load.failed.Load()
		eventually(t, "checks to fail", patience, func() bool { return load.failed.Load() > failed+50 })
		if victim != shared {
			before := load.count()
			eventually(t, "users of the other masters to be admitted", patience, func() bool { return load.count() > before+15 })
		}
		if err := nodes[victim].thaw(); err != nil {
			t.Fatal(err)
		}
		before = load.count()
		took := eventually(t, "enforcement to be back", 2*time.Second, func() bool { return load.count() > before+20 })
		t.Logf("enforcing %v after the master was", took)
	}
	load.mustKeepTheLimit(t)
}

// TestALoanIsReportedThoughAnotherTenantIsShed: one tenant has so much waiting that its reports are shed.
func TestALoanIsReportedThoughAnotherTenantIsShed(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	s := New(client(t, clusterURL(nodes), patience), 10*patience) // whose patience outlasts a busy machine
	const greedy, quiet = 1, 2
	shared := spreadTier(1, "", still)
	shared.Key.Tenant = quiet
	asked := []enforce.Lease{{Key: shared.Key, Limit: still, Ask: enforce.Ask{Need: enforce.Token, Want: enforce.Token, Loan: true}}}
	if err := s.leaseApart(asked, time.Now()); err != nil || asked[0].Grant.Amount != enforce.Token {
		t.Fatalf("%s are lent: %v", asked[0].Grant.Amount, err)
	}

	node := s.nodeOf(shared.Key)
	send, held, release := node.combiner.Send, make(chan struct{}, maxInFlight), make(chan struct{})
	node.combiner.Send = func(b *combine.Batch) {
		select {
		case held <- struct{}{}:
			<-release
		case <-release:
		}
		send(b)
	}
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	var calls sync.WaitGroup
	for range usualInFlight {
		calls.Go(func() {
			_ = s.Take(context.Background(), []enforce.BucketCheck{{Look: true, Tiers: []enforce.Tier{shared}}})
		})
	}
	for range usualInFlight {
		<-held
	}
	many := make([]enforce.BucketCheck, 1<<14+1) // more than a tenant may have waiting
	for i := range many {
		many[i] = enforce.BucketCheck{Look: true, Tiers: make([]enforce.Tier, 4)}
		for j := range many[i].Tiers {
			many[i].Tiers[j] = spreadTier(rules.RuleID(j+1), "42", still)
		}
	}
	calls.Go(func() { _ = s.Take(context.Background(), many) })
	eventually(t, "the greedy tenant's checks to wait", patience, func() bool { return node.combiner.Depth() > 1<<16 })

	g := asked[0].Grant
	report := enforce.Ask{Epoch: g.Epoch, Loan: true, Returns: []enforce.Return{{Slot: g.Slot, Spent: g.Amount}}}
	pending := map[enforce.Key]enforce.Lease{shared.Key: {Key: shared.Key, Limit: still, Ask: report}}
	for i := range 20 * rules.Shards { // so that the quiet tenant's report is hardly the first of all
		key := enforce.Key{Tenant: greedy, Rule: 1, Subject: fmt.Sprint(i), Shard: uint8(i%rules.Shards) + 1}
		pending[key] = enforce.Lease{Key: key, Limit: still, Ask: report}
	}
	s.loans.mu.Lock()
	s.loans.pending = pending
	s.loans.mu.Unlock()
	waiting := node.combiner.Depth()
	var reporting sync.WaitGroup
	reporting.Go(func() { settleLoans(s) })
	eventually(t, "the quiet tenant's report to wait", time.Second, func() bool { return node.combiner.Depth() > waiting })
	goOn()
	reporting.Wait()
	calls.Wait()
	looked := mustTake(t, s, []enforce.BucketCheck{{Look: true, Tiers: []enforce.Tier{shared}}})
	if out := looked[0].Tiers[0].Out; out != 0 {
		t.Errorf("%s still count as lent", out)
	}
}

// TestAReportOutlivesACallThatIsNotSent: what was to be reported with the next loan stays to be reported.
func TestAReportOutlivesACallThatIsNotSent(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 1)
	check := enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, "", still), spreadTier(2, "42", still)}}
	borrowed := check.Tiers[1].Key // from a bucket outside of the first one's shard
	report := enforce.Lease{Key: borrowed, Limit: still, Ask: enforce.Ask{
		Epoch: 7, Loan: true, Returns: []enforce.Return{{Slot: 3, Spent: enforce.Token, Back: 2 * enforce.Token}},
	}}
	s.loans.isGiving = true // so that nothing is reported meanwhile
	s.loans.flushing = time.AfterFunc(time.Hour, func() {})
	for name, c := range map[string]struct {
		newer int64 // the epoch of a report that comes meanwhile
		want  enforce.Return
	}{
		"alone":                     {0, report.Ask.Returns[0]},
		"with a later one":          {7, enforce.Return{Slot: 3, Spent: 2 * enforce.Token, Back: 2 * enforce.Token}},
		"with one of another epoch": {8, enforce.Return{Slot: 3, Spent: enforce.Token}},
	} {
		l := &s.loans
		l.pending = map[enforce.Key]enforce.Lease{borrowed: report}
		lease := enforce.Lease{Key: borrowed, Limit: still}
		l.report(&lease)
		if c.newer > 0 {
			l.add(s, &enforce.Lease{Key: borrowed, Limit: still, Grant: enforce.Grant{Amount: enforce.Token, Slot: 3, Epoch: c.newer}}, enforce.Token)
		}
		l.keep(s, &lease)
		if got := l.pending[borrowed].Ask.Returns; len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: to be reported are %+v, want %+v", name, got, c.want)
		}
	}
	s.loans.pending = map[enforce.Key]enforce.Lease{borrowed: report}
	late := &spreadTake{
		store: s, queuedAt: time.Now().Add(-2 * s.budget), checks: []enforce.BucketCheck{check}, plans: make([]spreadPlan, 1),
		loans: map[enforce.Key]*loan{},
	}
	late.plan(0)
	late.borrow()
	if len(late.order) != 2 || !errors.Is(late.order[1].err, enforce.ErrNothingTaken) {
		t.Fatalf("a call without any time left borrows %+v", late.order)
	}
	if got := s.loans.pending[borrowed].Ask.Returns; len(got) != 1 || got[0] != report.Ask.Returns[0] {
		t.Errorf("after it, to be reported are %+v", got)
	}
}

// deniedForUser returns a check that a user's limit denies, so that what it borrows of a shared bucket goes back.
func deniedForUser(shared enforce.Tier, user string) []enforce.BucketCheck {
	return []enforce.BucketCheck{{Cost: 2 * enforce.Token, Tiers: []enforce.Tier{
		shared, spreadTier(2, user, enforce.Limit{Rate: rules.MinRate, Burst: 2}),
	}}}
}

// TestWhatADeniedCheckBorrowedGoesBackAtOnce, in a call that the caller does not wait for, and that others share.
func TestWhatADeniedCheckBorrowedGoesBackAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 1)
	shared := spreadTier(1, "", still)
	mustTake(t, s, deniedForUser(shared, "42")) // which is allowed
	settleLoans(s)
	never := time.AfterFunc(time.Hour, func() {}) // no other report is due
	defer never.Stop()
	s.loans.mu.Lock()
	s.loans.flushing = never
	s.loans.reporters.Add(1)
	s.loans.mu.Unlock()

	node := s.nodeOf(shared.Key)
	send, begun, goOn := node.combiner.Send, make(chan int, 100), make(chan struct{})
	node.combiner.Send = func(b *combine.Batch) {
		givenBack := 0
		for _, c := range b.Calls {
			for _, l := range c.Sending[0].Leases {
				if l.Ask.Want == 0 && givesBack(l.Ask) {
					givenBack++
				}
			}
		}
		if givenBack > 0 {
			begun <- givenBack
			<-goOn
		}
		send(b)
	}
	out := func() enforce.Tokens {
		return mustTake(t, s, []enforce.BucketCheck{{Look: true, Tiers: []enforce.Tier{shared}}})[0].Tiers[0].Out
	}
	if mustTake(t, s, deniedForUser(shared, "42"))[0].Allowed {
		t.Fatal("the user's limit allows the check")
	}
	eventually(t, "a report to be on its way, while the caller has its answer", patience, func() bool { return len(begun) == 1 })
	for _, user := range []string{"43", "44"} {
		mustTake(t, s, deniedForUser(shared, user))
		if mustTake(t, s, deniedForUser(shared, user))[0].Allowed {
			t.Fatal("the user's limit allows the check")
		}
	}
	if got := out(); got == 0 {
		t.Error("nothing is lent: that tests nothing")
	}
	close(goOn)
	eventually(t, "what was borrowed to be back", patience, func() bool { return out() == 0 })
	if len(begun) != 2 {
		t.Errorf("%d reports, want the first one and one for all that came meanwhile", len(begun))
	}
}

// TestACloseReportsLoans that a process would else leave to be forgotten.
func TestACloseReportsLoans(t *testing.T) {
	t.Parallel()
	s, proxies := clusterNodes(t, 1)
	shared := spreadTier(1, "", still)
	other := New(client(t, "redis://"+proxies[0].addr()+"?cluster=true", patience), patience)
	for range 50 { // some of which find a report under way
		mustTake(t, s, deniedForUser(shared, "42"))
		s.Close()
		look := mustTake(t, other, []enforce.BucketCheck{{Look: true, Tiers: []enforce.Tier{shared}}})[0]
		if out := look.Tiers[0].Out; out != 0 {
			t.Fatalf("%s are still lent", out)
		}
	}
}

// TestABucketThatIsLentFromTwiceInOneCallMayBeAnotherType, which is a fresh bucket to every script.
func TestABucketThatIsLentFromTwiceInOneCallMayBeAnotherType(t *testing.T) {
	t.Parallel()
	server, s := generous(t)
	rdb := client(t, server.URL(), patience)
	key := spreadTier(1, "", still).Key
	if err := rdb.RPush(t.Context(), keyText(key), "somebody's").Err(); err != nil {
		t.Fatal(err)
	}
	report := enforce.Lease{Key: key, Limit: still, Ask: enforce.Ask{Loan: true}} // it leaves such a key as it is
	borrow := enforce.Lease{Key: key, Limit: still, Ask: enforce.Ask{Need: enforce.Token, Want: enforce.Token, Loan: true}}
	leases := []enforce.Lease{report, borrow}
	if err := s.leaseApart(leases, time.Now()); err != nil || leases[1].Grant.Amount != enforce.Token {
		t.Errorf("%+v, %v", leases[1], err)
	}
}

// TestReportsOfLoansShareCalls: one call in reportAfter reports what no check has, however many checks there were.
func TestReportsOfLoansShareCalls(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	check := enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{spreadTier(1, "", still), spreadTier(2, "42", still)}}
	var seen noted
	s.Observe(&seen)
	const checks = 300
	start := time.Now()
	pace := time.NewTicker(time.Millisecond) // so that reports wait between two checks
	defer pace.Stop()
	for range checks {
		<-pace.C
		mustTake(t, s, []enforce.BucketCheck{check})
	}
	calls := int64(time.Since(start)/reportAfter) + 1
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if got, most := int64(len(seen.scripts)), 2*(checks+calls); got > most {
		t.Errorf("%d checks of two shards, and %d calls that report, are %d scripts: want at most %d", checks, calls, got, most)
	}
}
