package redisbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/buckettest"
	"github.com/sluicegate/sluice/internal/store/combine"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	admin := client(t, server.URL(), testTimeout)
	if err := admin.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	free := make(chan int, 16)
	for database := range cap(free) {
		free <- database
	}
	user := createDocumentedUser(t, admin)
	open := func(t *testing.T) buckettest.Store {
		database := <-free
		rdb := client(t, fmt.Sprintf("redis://%s/%d", server.Addr(), database), testTimeout)
		if err := rdb.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { free <- database })
		s := New(client(t, fmt.Sprintf("redis://%s@%s/%d", user.login, server.Addr(), database), testTimeout),
			testTimeout)
		return buckettest.Store{
			Take: func(now int64, checks []enforce.BucketCheck) error {
				expire(t, rdb, now, checks)
				return takeAt(s, now, checks)
			},
			ApplyEdits: func(now int64, edits []enforce.Edit) error {
				s.stamp, s.walkPause = func() int64 { return now }, 0
				return newWalk(s, edits).scan(t.Context(), s.rdb)
			},
			Newer: func(key enforce.Key) {
				if err := rdb.Set(t.Context(), keyText(key), "\x04 whatever it is", 0).Err(); err != nil {
					t.Fatal(err)
				}
			},
			SettleReservation: func(now int64, tenant rules.TenantID, id enforce.ReservationID,
				with enforce.Settlement,
			) (enforce.Settled, error) {
				s.stamp = func() int64 { return now }
				return s.SettleReservation(t.Context(), tenant, id, with)
			},
			Lease: func(now int64, leases []enforce.Lease) error {
				s.stamp = func() int64 { return now }
				return s.Lease(t.Context(), leases)
			},
			State: func() map[string]string { return contents(t, rdb) },
			Credit: func(now int64, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
				after enforce.Bucket, err error,
			) {
				before, after, _, err = s.credit(credit{key: key, limit: limit, amount: amount, stamp: now})
				return before, after, err
			},
			CreditOnce: func(now int64, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
				after enforce.Bucket, isRepeated bool, err error,
			) {
				return s.credit(credit{key: key, limit: limit, amount: amount, stamp: now, id: id})
			},
		}
	}
	buckettest.Run(t, open)
	buckettest.RunCredits(t, open)
	buckettest.RunReservations(t, open)
	buckettest.RunLeases(t, open)
	t.Run("streams use up a budget and nothing above it", func(t *testing.T) {
		t.Parallel()
		buckettest.RunStreams(t, open(t))
	})
}

func TestProductionTimeIsThatOfRedis(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	limit := enforce.Limit{Rate: 50, Burst: 1}
	start, denied := time.Now(), 0 // before the first, however long its answer is on the way
	if !mustTake(t, s, one(user("42", limit)))[0].Allowed {
		t.Fatal("a fresh bucket denies")
	}
	eventually(t, "the bucket earns a token", testTimeout, func() bool {
		allowed := mustTake(t, s, one(user("42", limit)))[0].Allowed
		if !allowed {
			denied++
		}
		return allowed
	})
	if elapsed := time.Since(start); denied == 0 && elapsed < 15*time.Millisecond {
		t.Errorf("a token came back after %v", elapsed)
	}
	want, err := s.rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range contents(t, s.rdb) {
		stamp := time.UnixMicro(int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(value[13:21])))))
		if off := want.Sub(stamp); off < 0 || off > testTimeout {
			t.Errorf("the bucket's stamp is %v behind Redis's clock", off)
		}
	}
}

func TestEveryKeyExpiresSoonAfterItIsFull(t *testing.T) {
	t.Parallel()
	const second, day = 1_000_000, 86_400_000_000
	tests := map[string]struct {
		limit enforce.Limit
		costs []enforce.Tokens
	}{
		"a second to full":      {enforce.Limit{Rate: 10, Burst: 10}, tokens(10)},
		"a microsecond to full": {enforce.Limit{Rate: 1e6, Burst: 1}, tokens(1)},
		"an hour to full":       {enforce.Limit{Rate: 1, Burst: 7200}, tokens(3600)},
		"thirty million years to full": {
			enforce.Limit{Rate: rules.MinRate, Burst: rules.MaxBurst},
			tokens(rules.MaxBurst/2, 1, rules.MaxBurst/2-1),
		},
		"fuller and fuller": {
			enforce.Limit{Rate: 1, Burst: 7200},
			tokens(1, 1, 1, 1, 1, 1, 1, 1, 3600, 1, 1),
		},
		"steps": {
			enforce.Limit{Rate: 1, Burst: 7200, Interval: second / 1000},
			tokens(1, 1, 6, 1, 3600, 1),
		},
		"a queue": {
			enforce.Limit{Kind: rules.KindLeakyBucket, Rate: 1, Burst: 7200},
			tokens(1, 1, 6, 1, 3600, 1),
		},
		"a short window": {
			enforce.Limit{Kind: rules.KindFixedWindow, Burst: 1e6, Interval: second / 50},
			tokens(1, 1, 1, 1),
		},
		"a window": {
			enforce.Limit{Kind: rules.KindFixedWindow, Burst: 1e6, Interval: day},
			tokens(1, 1, 3600, 1),
		},
		"a window that slides": {
			enforce.Limit{Kind: rules.KindSlidingWindow, Burst: 1e6, Interval: day},
			tokens(1, 1, 3600, 1),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := generous(t)
			for _, cost := range test.costs {
				start := time.Now()
				checks := one(user("42", test.limit))
				checks[0].Cost = cost
				mustTake(t, s, checks)
				ttl, err := s.rdb.PTTL(t.Context(), "{s1}1:42").Result()
				if err != nil {
					t.Fatal(err)
				}
				expectExpiry(t, fmt.Sprintf("after %d millionths", cost), ttl, checks[0].Tiers[0].TimeToFull(), start)
			}
		})
	}
}

func tokens(amounts ...enforce.Tokens) []enforce.Tokens {
	for i := range amounts {
		amounts[i] *= enforce.Token
	}
	return amounts
}

func expectExpiry(t *testing.T, what string, ttl, timeToFull time.Duration, start time.Time) {
	t.Helper()
	if low := timeToFull + 10*time.Second - time.Since(start) - time.Millisecond; ttl < low ||
		ttl > timeToFull+15*time.Second+time.Millisecond {
		t.Errorf("%s: expires in %v, want 10 to 15 s more than %v", what, ttl, timeToFull)
	}
}

func TestAValueStaysInsideItsObject(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	mustTake(t, s, one(user("42", enforce.Limit{Rate: 0.1, Burst: 10, Since: 1_800_000_000_000_000})))
	encoding, err := s.rdb.ObjectEncoding(t.Context(), "{s1}1:42").Result()
	if err != nil || encoding != "embstr" {
		t.Errorf("the value's encoding is %q, %v", encoding, err)
	}
}

func state(version byte, micros float64, fraction uint32, stamp, rate float64, burst uint32, since float64) string {
	buf := appendFloat([]byte{version}, micros)
	buf = binary.LittleEndian.AppendUint32(buf, fraction)
	buf = appendFloat(appendFloat(buf, stamp), rate)
	buf = binary.LittleEndian.AppendUint32(buf, burst)
	return string(appendFloat(buf, since))
}

func TestABrokenValueIsAFreshBucketAndCounted(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	limit := enforce.Limit{Rate: 1, Burst: 10, Since: 5}
	nan, inf := math.NaN(), math.Inf(1)
	values := map[string]string{
		"empty":                  "",
		"text":                   "hello",
		"a number":               "12345",
		"41 bytes of text":       strings.Repeat("x", 41),
		"41 NULs":                strings.Repeat("\x00", 41),
		"bytes above versions":   "\x20\x80\xff",
		"one byte short":         state(1, 1e6, 0, now, 1, 10, 5)[:40],
		"one byte long":          state(1, 1e6, 0, now, 1, 10, 5) + "x",
		"micros not a number":    state(1, nan, 0, now, 1, 10, 5),
		"micros infinite":        state(1, inf, 0, now, 1, 10, 5),
		"micros a fraction":      state(1, 0.5, 0, now, 1, 10, 5),
		"micros below zero":      state(1, -2, 0, now, 1, 10, 5),
		"micros above the burst": state(1, 10_000_001, 0, now, 1, 10, 5),
		"stamp not a number":     state(1, 0, 0, nan, 1, 10, 5),
		"stamp infinite":         state(1, 0, 0, inf, 1, 10, 5),
		"stamp below zero":       state(1, 0, 0, -1, 1, 10, 5),
		"stamp a fraction":       state(1, 0, 0, now-0.25, 1, 10, 5),
		"rate not a number":      state(1, 0, 0, now, nan, 10, 9),
		"rate zero":              state(1, 0, 0, now, 0, 10, 9),
		"rate infinite":          state(1, 0, 0, now, inf, 10, 9),
		"burst zero":             state(1, 0, 0, now, 1, 0, 9),
		"burst too large":        state(1, 0, 0, now, 1, 1_000_000_001, 9),
		"since not a number":     state(1, 0, 0, now, 1, 10, nan),
		"since infinite":         state(1, 0, 0, now, 1, 10, inf),
	}
	_, s := generous(t)
	for name, value := range values {
		broken := s.BrokenValues()
		if err := s.rdb.Set(t.Context(), "{s1}1:"+name, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		checks := one(user(name, limit))
		checks[0].Cost = 0 // even a check that takes nothing replaces it
		if err := takeAt(s, now, checks); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := checks[0].Tiers[0].Bucket, enforce.NewState(limit, now).Bucket; got != want {
			t.Errorf("%s: answered by %+v, want a fresh bucket", name, got)
		}
		if got := s.BrokenValues() - broken; got != 1 {
			t.Errorf("%s: counted %d times", name, got)
		}
		want := state(1, 10e6, 0, now, 1, 10, 5)
		if got := s.rdb.Get(t.Context(), "{s1}1:"+name).Val(); got != want {
			t.Errorf("%s: replaced by %q, want %q", name, got, want)
		}
	}
}

func TestAValueOfAnUnknownVersionIsLeftAloneAndNotAnswered(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	limit := enforce.Limit{Rate: 1, Burst: 10, Since: 5}
	_, first := generous(t)
	for name, value := range map[string]string{
		"of the same length":      state(4, 1e6, 0, now, 1, 10, 5),
		"longer":                  state(4, 1e6, 0, now, 1, 10, 5) + "more",
		"the version alone":       "\x04",
		"the last version of all": "\x1f" + strings.Repeat("x", 40),
	} {
		for _, shadow := range []bool{false, true} {
			s := New(first.rdb, testTimeout)
			if err := s.rdb.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			newer := user("newer", limit)
			newer.Shadow = shadow
			if err := s.rdb.Set(t.Context(), keyText(newer.Key), value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			checks := []enforce.BucketCheck{
				{Cost: enforce.Token, Tiers: []enforce.Tier{user("before", limit)}},
				{Cost: enforce.Token, Tiers: []enforce.Tier{user("beside", limit), newer}},
				{Tiers: []enforce.Tier{newer}},
				{Cost: enforce.Token, Tiers: []enforce.Tier{user("after", limit)}},
			}
			if err := takeAt(s, now, checks); !errors.Is(err, ErrUnknownVersion) {
				t.Errorf("%s: the error is %v", name, err)
			}
			for i, want := range []bool{true, false, false, true} {
				if checks[i].Answered != want || checks[i].Allowed != want {
					t.Errorf("%s: check %d is answered %t, allowed %t; want both %t", name, i, checks[i].Answered,
						checks[i].Allowed, want)
				}
			}
			if s.UnknownVersions() != 2 || s.BrokenValues() != 0 || s.State() != Up {
				t.Errorf("%s: counted as %d unknown and %d broken, and Redis is %s", name, s.UnknownVersions(),
					s.BrokenValues(), s.State())
			}
			if _, _, err := s.Credit(t.Context(), newer.Key, limit, enforce.Fill); !errors.Is(err, ErrUnknownVersion) {
				t.Errorf("%s: the error of a reset is %v", name, err)
			}
			want := map[string]string{
				keyText(newer.Key): value, "{s1}1:before": state(1, 9e6, 0, now, 1, 10, 5),
				"{s1}1:after": state(1, 9e6, 0, now, 1, 10, 5),
			}
			if got := contents(t, s.rdb); !maps.Equal(got, want) {
				t.Errorf("%s: Redis holds %q, want %q", name, got, want)
			}
		}
	}
}

func TestAKeyOfAnotherTypeIsAFreshBucket(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	if err := s.rdb.HSet(t.Context(), "{s1}1:42", "tokens", "0").Err(); err != nil {
		t.Fatal(err)
	}
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 1}
	if !mustTake(t, s, one(user("42", limit)))[0].Allowed {
		t.Error("the first check was denied")
	}
	if mustTake(t, s, one(user("42", limit)))[0].Allowed {
		t.Error("the second check was allowed")
	}
}

func TestAStampAheadOfTheClockIsTheClockSteppingBack(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	_, s := generous(t)
	if err := s.rdb.Set(t.Context(), "{s1}1:42", state(1, 0, 0, now+1e12, 1, 10, 5), 0).Err(); err != nil {
		t.Fatal(err)
	}
	for step, want := range []bool{false, true} {
		checks := one(user("42", enforce.Limit{Rate: 1, Burst: 10, Since: 5}))
		if err := takeAt(s, now+int64(step)*1_000_000, checks); err != nil || checks[0].Allowed != want {
			t.Errorf("after %d s: allowed %t, want %t; %v", step, checks[0].Allowed, want, err)
		}
	}

	// Another release has moved the Stamp past the step of Former, and kept Former.
	stepped := enforce.State{
		Bucket: enforce.Bucket{
			Stamp: now + 25_000_000, Limit: enforce.Limit{Rate: 0.5, Burst: 20, Interval: 10_000_000},
		},
		Former: now + 20_000_000,
	}
	if err := s.rdb.Set(t.Context(), "{s1}1:steps", appendState(nil, &stepped), 0).Err(); err != nil {
		t.Fatal(err)
	}
	checks := one(user("steps", stepped.Limit))
	if err := takeAt(s, now+30_000_000, checks); err != nil {
		t.Fatal(err)
	}
	stepped.Advance(stepped.Limit, 0, now+30_000_000)
	if left := checks[0].Tiers[0].Bucket.Level.Micros; left != 4*enforce.Token ||
		stepped.Level.Micros != 5*enforce.Token {
		t.Errorf("a step of 5 leaves %d in Redis after a check, and %d in Go before it", left, stepped.Level.Micros)
	}
}

func TestScriptsHoldTheirBounds(t *testing.T) {
	t.Parallel()
	limit := enforce.Limit{Rate: 1, Burst: 10}
	tests := map[string]struct {
		checks, tiers int
		shared        bool
		tenants       int
		apart         bool
		want          []int // checks per script
	}{
		"tenants go together":                 {checks: 65, tiers: 1, tenants: 3, want: []int{64, 1}},
		"tenants go apart in a cluster":       {checks: 65, tiers: 1, tenants: 3, apart: true, want: []int{22, 22, 21}},
		"64 checks fit":                       {checks: 64, tiers: 1, want: []int{64}},
		"the 65th starts another":             {checks: 65, tiers: 1, want: []int{64, 1}},
		"256 keys fit":                        {checks: 32, tiers: 8, want: []int{32}},
		"the 257th key starts another":        {checks: 33, tiers: 8, want: []int{32, 1}},
		"shared keys count once":              {checks: 60, tiers: 200, shared: true, want: []int{60}},
		"one check is one script at any size": {checks: 2, tiers: 1000, want: []int{1, 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checks := make([]enforce.BucketCheck, test.checks)
			for i := range checks {
				for j := range test.tiers {
					subject := fmt.Sprint(i, "-", j)
					if test.shared {
						subject = fmt.Sprint(j)
					}
					tier := user(subject, limit)
					tier.Key.Tenant = rules.TenantID(i % max(1, test.tenants))
					checks[i].Tiers = append(checks[i].Tiers, tier)
				}
			}
			b := newBatch()
			b.Batch = &combine.Batch{Calls: []*combine.Call{{Sending: checks}}}
			var got []int
			for _, script := range b.pack(&Store{}, test.apart) {
				got = append(got, len(script.run().checks))
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("scripts of %v checks, want %v", got, test.want)
			}
		})
	}
}

func TestACheckOfTooManyTiersIsRefused(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	checks := []enforce.BucketCheck{{Tiers: make([]enforce.Tier, maxTiers+1)}}
	if err := s.Take(t.Context(), checks); err == nil {
		t.Error("no error")
	}
}

func TestABatchIsOneRoundTripAndACheckOneScript(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	limit := enforce.Limit{Rate: 1, Burst: 10}
	mustTake(t, s, one(user("warm", limit)))
	mustTake(t, s, checks200(limit))
	var trips atomic.Int64
	s.rdb.AddHook(countTrips{&trips})
	for name, test := range map[string]struct {
		checks  []enforce.BucketCheck
		scripts int64
	}{
		"one check of four tiers": {checks200(limit)[:1], 1},
		"200 checks":              {checks200(limit), 4},
	} {
		trips.Store(0)
		before := scriptCalls(t, s)
		mustTake(t, s, test.checks)
		if got := scriptCalls(t, s) - before; got != test.scripts {
			t.Errorf("%s: %d scripts, want %d", name, got, test.scripts)
		}
		// Each look at the statistics is a trip.
		if got := trips.Load() - 2; got != 1 {
			t.Errorf("%s: %d round trips", name, got)
		}
	}
}

func checks200(limit enforce.Limit) []enforce.BucketCheck {
	checks := make([]enforce.BucketCheck, 200)
	for i := range checks {
		checks[i] = fourTiers(i, limit)
	}
	return checks
}

func scriptCalls(t testing.TB, s *Store) (calls int64) {
	t.Helper()
	info, err := s.rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &calls); err == nil {
			return calls
		}
	}
	t.Fatalf("no EVALSHA in %s", info)
	return 0
}

type countTrips struct{ n *atomic.Int64 }

func (countTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c countTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c countTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func TestCheckWarnsOfAPolicyThatEvicts(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	if warnings, err := s.CheckSettings(t.Context()); err != nil || len(warnings) != 0 {
		t.Errorf("noeviction: %q, %v", warnings, err)
	}
	if err := s.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if warnings, err := s.CheckSettings(t.Context()); err != nil || len(warnings) != 1 ||
		!strings.Contains(warnings[0], "allkeys-lru") {
		t.Errorf("allkeys-lru: %q, %v", warnings, err)
	}
	if nodes := s.Ping(t.Context()); Summary(nodes) != Up {
		t.Errorf("a ping: %v", nodes)
	}
}

func TestDeploymentsWithDifferentPrefixesShareNoBucket(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 1}
	for _, prefix := range []string{"", "s", "blue", "blues1"} {
		deployment := NewPrefixed(s.rdb, testTimeout, prefix)
		if !mustTake(t, deployment, one(user("42", limit)))[0].Allowed {
			t.Errorf("with the prefix %q a fresh bucket denies", prefix)
		}
	}
	want := []string{"{blues1s1}1:42", "{blues1}1:42", "{s1}1:42", "{ss1}1:42"}
	if got := slices.Sorted(maps.Keys(contents(t, s.rdb))); !slices.Equal(got, want) {
		t.Errorf("the keys are %q, want %q", got, want)
	}
}
