package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var (
	fast = enforce.Limit{Rate: 100, Burst: 100, Since: 1}
	slow = enforce.Limit{Rate: 1.0 / 86400, Burst: 100, Since: time.Now().UnixMicro()}
)

func slowed(id string) enforce.Edit {
	return enforce.Edit{
		Tenant: 1, Rule: 1, ID: id,
		Limit: func(subject string) (enforce.Limit, bool) { return slow, subject != "of another limit" },
	}
}

func mustExhaust(t *testing.T, s *Store, tiers ...enforce.Tier) {
	t.Helper()
	for _, tier := range tiers {
		checks := []enforce.BucketCheck{{Cost: 100 * enforce.Token, Tiers: []enforce.Tier{tier}}}
		if !mustTake(t, s, checks)[0].Allowed {
			t.Fatalf("a fresh bucket denies %+v", tier.Key)
		}
	}
}

func TestAnEditThatSlowsKeepsIdleBucketsUntilTheyAreFull(t *testing.T) {
	t.Parallel()
	server, _ := generous(t)
	s := NewPrefixed(client(t, server.URL(), testTimeout), testTimeout, "a[*]?")
	long := strings.Repeat("x", 65)
	other := user("42", fast)
	other.Key.Rule = 11 // its keys begin as those of rule 1 do
	mustExhaust(t, s, user("42", fast), user("of another limit", fast), user(long, fast), other)
	edit := slowed("edit")
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit}); err != nil {
		t.Fatal(err)
	}
	common := slowed("edit of all")
	common.Rule, common.Common = 2, &slow
	longOther := user(long, fast)
	longOther.Key.Rule = 2
	mustExhaust(t, s, longOther)
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit, common}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		tier enforce.Tier
		kept bool
	}{
		{user("42", fast), true},
		{user("of another limit", fast), false},
		{other, false},
		{user(long, fast), false}, // it is not known whose it is
		{longOther, true},
	} {
		key := string(appendKey(nil, "a[*]?", test.tier.Key))
		ttl, err := s.rdb.PTTL(t.Context(), key).Result()
		if err != nil || ttl <= 0 || (ttl > time.Hour) != test.kept {
			t.Errorf("%q expires in %v, want after more than an hour: %t; %v", key, ttl, test.kept, err)
		}
	}
	answer := mustTake(t, s, one(user("42", fast)))[0]
	if answer.Allowed && answer.Tiers[0].Bucket.Level.Micros > enforce.Token || answer.Tiers[0].Bucket.Limit != slow {
		t.Errorf("after the edit: %+v", answer.Tiers[0].Bucket)
	}
}

type scans struct {
	n    *atomic.Int64
	held bool
}

func (scans) DialHook(next redis.DialHook) redis.DialHook { return next }

func (scans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c scans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "scan" {
			c.n.Add(1)
			if c.held {
				<-ctx.Done()
			}
		}
		return next(ctx, cmd)
	}
}

func TestOneProcessSettlesForAll(t *testing.T) {
	t.Parallel()
	server, first := generous(t)
	mustExhaust(t, first, user("42", fast))
	var walks atomic.Int64
	var processes sync.WaitGroup
	for range 5 {
		s := New(client(t, server.URL(), testTimeout), testTimeout)
		s.rdb.AddHook(scans{n: &walks})
		processes.Go(func() {
			if err := s.ApplyEdits(t.Context(), []enforce.Edit{slowed("edit")}); err != nil {
				t.Error(err)
			}
		})
	}
	processes.Wait()
	if got := walks.Load(); got != 1 { // one page
		t.Errorf("%d pages were read of a keyspace of one", got)
	}
	if err := first.ApplyEdits(t.Context(), []enforce.Edit{slowed("edit"), slowed("another edit")}); err != nil {
		t.Fatal(err)
	}
	if marks, err := first.rdb.Exists(t.Context(), "{walk}:1:1:edit", "{walk}:1:1:another edit",
		"{walk}").Result(); err != nil || marks != 2 {
		t.Errorf("%d of two marks and no lease; %v", marks, err)
	}
}

func TestManyEditsAreManySmallCommands(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	mustExhaust(t, s, user("42", fast))
	most := &widest{}
	s.rdb.AddHook(most)
	edits := make([]enforce.Edit, 5*maxKeys+1)
	for i := range edits {
		edits[i] = slowed(fmt.Sprint(i))
	}
	for range 2 {
		if err := s.ApplyEdits(t.Context(), edits); err != nil {
			t.Fatal(err)
		}
	}
	if got := most.commands.Load(); got > maxKeys {
		t.Errorf("one round trip was about %d edits, want at most %d", got, maxKeys)
	}
	if marks := len(s.rdb.Keys(t.Context(), "{walk}:*").Val()); marks != len(edits) {
		t.Errorf("%d edits have marks, want %d", marks, len(edits))
	}
}

type widest struct{ commands atomic.Int64 }

func (*widest) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *widest) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "mget" {
			w.note(len(cmd.Args()) - 1)
		}
		return next(ctx, cmd)
	}
}

func (w *widest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.note(len(cmds))
		return next(ctx, cmds)
	}
}

func (w *widest) note(commands int) { w.commands.Store(max(w.commands.Load(), int64(commands))) }

func editOf(tenant rules.TenantID) enforce.Edit {
	edit := slowed("edit")
	edit.Tenant = tenant
	return edit
}

func userOf(tenant rules.TenantID) enforce.Tier {
	tier := user("42", fast)
	tier.Key.Tenant = tenant
	return tier
}

func ttlOf(t *testing.T, s *Store, tier enforce.Tier) time.Duration {
	t.Helper()
	ttl, err := s.rdb.PTTL(t.Context(), keyText(tier.Key)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return ttl
}

func TestAWalkReachesTheBucketsOfEachMasterOfACluster(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	s := New(client(t, clusterURL(nodes), testTimeout), testTimeout)
	var edits []enforce.Edit
	tenants := tenantsOf(t, nodes[0], 3, 2)
	for _, tenant := range slices.Concat(tenants...) {
		mustExhaust(t, s, userOf(tenant))
		edits = append(edits, editOf(tenant))
	}
	resting := tenants[0][1]
	edits = slices.DeleteFunc(edits, func(edit enforce.Edit) bool { return edit.Tenant == resting })
	if err := s.ApplyEdits(t.Context(), edits); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range slices.Concat(tenants...) {
		if ttl := ttlOf(t, s, userOf(tenant)); (ttl > time.Hour) != (tenant != resting) {
			t.Errorf("the bucket of tenant %d expires in %v", tenant, ttl)
		}
	}
}

func TestAMasterThatIsLostKeepsNoBucketsOfOthersFromBeingSettled(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	tenants := tenantsOf(t, nodes[0], 3, 1)
	lost := nodes[0].slotOfKey(t, "{walk}") * 3 / 16384 // where one lease and one set of marks would be
	const budget = 250 * time.Millisecond
	var pages atomic.Int64
	options, err := Options(clusterURL(nodes), budget)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClusterClient(options.Cluster())
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(scans{n: &pages}) })
	s := New(rdb, budget)
	var edits []enforce.Edit
	for master := range tenants {
		tier := userOf(tenants[master][0])
		eventually(t, "a bucket is emptied", testTimeout, func() bool {
			checks := []enforce.BucketCheck{{Cost: 100 * enforce.Token, Tiers: []enforce.Tier{tier}}}
			return s.Take(t.Context(), checks) == nil
		})
		edits = append(edits, editOf(tier.Key.Tenant))
	}
	if err := nodes[lost].process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyEdits(t.Context(), edits); err == nil {
		t.Error("no error although a master is lost")
	}
	for master := range tenants {
		if ttl := nodes[master].direct.PTTL(t.Context(),
			keyText(userOf(tenants[master][0]).Key)).Val(); master != lost && ttl < time.Hour {
			t.Errorf("on master %d, which is not lost, the bucket expires in %v", master, ttl)
		}
	}
	walked := pages.Load()
	if err := s.ApplyEdits(t.Context(), edits); err == nil {
		t.Error("no error although a master is lost")
	}
	if again := pages.Load() - walked; again > 0 {
		t.Errorf("%d pages were read again of masters whose buckets are settled", again)
	}
}

func TestAProcessThatWasKilledWhileItSettledIsReplaced(t *testing.T) {
	t.Parallel()
	server, first := generous(t)
	mustExhaust(t, first, user("42", fast))
	if err := first.rdb.Set(t.Context(), "{walk}", "killed", walkLock).Err(); err != nil {
		t.Fatal(err)
	}
	second := New(client(t, server.URL(), testTimeout), testTimeout)
	if err := second.ApplyEdits(t.Context(), []enforce.Edit{slowed("edit")}); err != nil {
		t.Fatal(err)
	}
	if ttl := first.rdb.PTTL(t.Context(), "{s1}1:42").Val(); ttl < time.Hour {
		t.Errorf("the bucket expires in %v", ttl)
	}
}

func TestAProcessThatLostItsLeaseStopsAndLeavesTheMarkToTheOther(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	mustExhaust(t, s, user("42", fast))
	var walks atomic.Int64
	s.rdb.AddHook(scans{&walks, true})
	failed := make(chan error, 1)
	go func() { failed <- s.ApplyEdits(context.WithoutCancel(t.Context()), []enforce.Edit{slowed("edit")}) }()
	eventually(t, "the walk begins", testTimeout, func() bool { return walks.Load() == 1 })
	if err := s.rdb.Set(t.Context(), "{walk}", "another", testTimeout).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, errLockLost) {
		t.Errorf("the error is %v", err)
	}
	if s.rdb.Exists(t.Context(), "{walk}:1:1:edit").Val() != 0 || s.rdb.Get(t.Context(), "{walk}").Val() != "another" {
		t.Error("the process touched what is the other's")
	}
}

func TestAWalkOverManyKeysLeavesRedisTimeForChecks(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	fill := `for i = 1, ARGV[1] do redis.call('SET', '{s1}1:' .. i, ARGV[2]) end`
	const keys = 20_000
	value := state(1, 0, 0, float64(time.Now().UnixMicro()), fast.Rate, uint32(fast.Burst), float64(fast.Since))
	if err := s.rdb.Eval(t.Context(), fill, nil, keys, value).Err(); err != nil &&
		!strings.Contains(err.Error(), "nil") {
		t.Fatal(err)
	}
	start := time.Now()
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{slowed("edit")}); err != nil {
		t.Fatal(err)
	}
	if took, least := time.Since(start), leastPause*(keys/scanCount+keys/maxKeys); took < least {
		t.Errorf("%d keys took %v, which is no rest of %v after each command", keys, took, leastPause)
	}
	for _, i := range []int{1, keys / 2, keys} {
		if ttl := s.rdb.PTTL(t.Context(), fmt.Sprint("{s1}1:", i)).Val(); ttl < time.Hour {
			t.Errorf("bucket %d expires in %v", i, ttl)
		}
	}
}

func TestALookHasATierForEachKey(t *testing.T) {
	t.Parallel()
	look := newLook(&Store{}, 0)
	for _, key := range []string{"{s1}1:42", "{s1}1:43", "{s1}1:44"} {
		look.addKey(1, key, fast)
	}
	look.finishLook()
	if want := []uint16{3, flagLook, 0, wireIndex, 2 * wireIndex}; !slices.Equal(look.wires, want) {
		t.Errorf("the wires of a look at three keys are %v, want %v", look.wires, want)
	}
}

func TestKeysAreTakenApartAsTheyWerePutTogether(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "blue", "s1"} {
		for _, subject := range []string{"", "42", "}1:a", "#:}", strings.Repeat("}", 65)} {
			key := enforce.Key{Tenant: rules.TenantID(7), Rule: 12, Subject: subject}
			rule, got, hashed, ok := splitKey(string(appendKey(nil, prefix, key)))
			if rule != "{"+prefix+"s7}12" || !ok || hashed != key.IsHashed() || !hashed && got != subject {
				t.Errorf("%q with the prefix %q: %q, %q, %t, %t", subject, prefix, rule, got, hashed, ok)
			}
		}
	}
	for _, foreign := range []string{"", "{walk}", "{s1}", "sessions:42", "{s1}12"} {
		if _, _, _, ok := splitKey(foreign); ok && strings.HasPrefix(foreign, "{") {
			t.Errorf("%q counts as a bucket's key", foreign)
		}
	}
}

func TestAWalkThatPanicsIsAnErrorAndFreesItsLease(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), testTimeout), testTimeout)
	mustExhaust(t, s, user("42", fast))
	edit := slowed("edit")
	edit.Limit = func(string) (enforce.Limit, bool) { panic(panicText) }
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{edit}); err == nil || !strings.Contains(err.Error(), panicText) {
		t.Errorf("the walk returns %v", err)
	}
	if held, err := s.rdb.Exists(t.Context(), "{"+s.prefix+"walk}").Result(); err != nil || held != 0 {
		t.Errorf("%d leases are held, %v", held, err)
	}
	if err := s.ApplyEdits(t.Context(), []enforce.Edit{slowed("edit")}); err != nil {
		t.Error(err)
	}
}
