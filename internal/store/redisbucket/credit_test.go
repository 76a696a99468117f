package redisbucket

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func mustCredit(t *testing.T, s *Store, tier enforce.Tier, amount enforce.Tokens) (before, after enforce.Bucket) {
	t.Helper()
	before, after, err := s.Credit(t.Context(), tier.Key, tier.Limit, amount)
	if err != nil {
		t.Fatal(err)
	}
	return before, after
}

func TestACreditIsSeenByEveryTake(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	tier := user("42", enforce.Limit{Rate: rules.MinRate, Burst: 2})
	mustTake(t, s, one(tier))
	mustTake(t, s, one(tier))
	if before, after := mustCredit(t, s, tier, enforce.Token); before.Level.Micros.Whole() != 0 ||
		after.Level.Micros.Whole() != 1 {
		t.Errorf("from %+v to %+v", before.Level, after.Level)
	}
	if !mustTake(t, s, one(tier))[0].Allowed || mustTake(t, s, one(tier))[0].Allowed {
		t.Error("a credit of one token does not let one check pass")
	}
}

func otherDays(c *call, argument int, limit enforce.Limit) {
	c.args[argument] = appendCalendar(nil, limit, time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

func TestACreditOutsideOfAllWindowsSaysSo(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	rule := rules.Rule{Algorithm: rules.FixedWindow, Burst: 10, Window: rules.Window{Calendar: rules.CalendarDay}}
	tier := user("42", rule.Limit())
	call := s.creditCall(credit{key: tier.Key, limit: tier.Limit, amount: enforce.Token})
	otherDays(call, 1, tier.Limit)
	reply, err := s.run(tier.Key.Tenant, call)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.readCredit(reply); !errors.Is(err, ErrOtherWindow) || s.UnknownVersions() != 0 {
		t.Errorf("the error is %v, and %d unknown versions are counted", err, s.UnknownVersions())
	}
}

func TestACreditLetsItsKeyExpireSoonAfterItIsFull(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	for name, test := range map[string]struct {
		limit  enforce.Limit
		amount enforce.Tokens
		want   time.Duration
	}{
		"an hour to full": {enforce.Limit{Rate: 1, Burst: 7200}, -3600 * enforce.Token, time.Hour},
		"full":            {enforce.Limit{Rate: 1, Burst: 7200}, enforce.Fill, 0},
		"years to full": {
			enforce.Limit{Rate: rules.MinRate, Burst: rules.MaxBurst},
			-enforce.Fill,
			enforce.MaxWait,
		},
	} {
		tier := user(name, test.limit)
		start := time.Now()
		if test.amount > 0 {
			mustCredit(t, s, tier, -enforce.Token)
		}
		mustCredit(t, s, tier, test.amount)
		ttl, err := s.rdb.PTTL(t.Context(), keyText(tier.Key)).Result()
		if err != nil {
			t.Fatal(err)
		}
		expectExpiry(t, name, ttl, test.want, start)
	}
}

func TestCreditingABrokenValueCreditsAFreshBucket(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 10, Since: 5}
	for name, value := range map[string]string{
		"text":                   "hello",
		"micros above the burst": state(1, 10_000_001, 0, 1, 1, 10, 5),
	} {
		tier := user(name, limit)
		if err := s.rdb.Set(t.Context(), keyText(tier.Key), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		broken := s.BrokenValues()
		before, after := mustCredit(t, s, tier, -4*enforce.Token)
		if before.Level.Micros.Whole() != 10 || after.Level.Micros.Whole() != 6 || s.BrokenValues() != broken+1 {
			t.Errorf("%s: from %+v to %+v, counted %d times", name, before, after, s.BrokenValues()-broken)
		}
		mustCredit(t, s, tier, 0)
		if s.BrokenValues() != broken+1 {
			t.Errorf("%s: it was not replaced", name)
		}
	}

	hash := user("a hash", limit)
	if err := s.rdb.HSet(t.Context(), keyText(hash.Key), "tokens", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if before, after := mustCredit(t, s, hash, -4*enforce.Token); before.Level.Micros.Whole() != 10 ||
		after.Level.Micros.Whole() != 6 {
		t.Errorf("a key of another type: from %+v to %+v", before, after)
	}
}

func TestACreditIsMadeEvenIfItsCallerGoesAway(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	tier := user("42", still)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, _, err := s.Credit(ctx, tier.Key, tier.Limit, -enforce.Token); err != nil {
		t.Error(err)
	}
	if before, _ := mustCredit(t, s, tier, 0); before.Level.Micros.Whole() != still.Burst-1 {
		t.Errorf("%v tokens are left", before.Level.Micros)
	}
}

func TestALostReplyCreditsAtMostOnce(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	p := newProxy(t, server.Addr())
	s := New(client(t, "redis://"+p.addr(), testTimeout), testTimeout)
	expectOneCredit(t, s, New(client(t, server.URL(), testTimeout), testTimeout), p)
}

func TestAClusterCreditsAtMostOnce(t *testing.T) {
	t.Parallel()
	s, proxies := clusterNodes(t, 1)
	expectOneCredit(t, s, s, proxies[0])
}

func expectOneCredit(t *testing.T, s, direct *Store, p *proxy) {
	t.Helper()
	tier := user("42", still)
	mustCredit(t, s, tier, -enforce.Token)
	p.loseReply.Store(true)
	if _, _, err := s.Credit(t.Context(), tier.Key, tier.Limit, -enforce.Token); err == nil || p.lost.Load() != 1 {
		t.Errorf("error %v though %d replies were lost", err, p.lost.Load())
	}
	before, _ := mustCredit(t, direct, tier, 0)
	if taken := still.Burst - before.Level.Micros.Whole(); taken != 2 {
		t.Errorf("%d tokens taken, want 2", taken)
	}
}

func TestACreditToAFrozenRedisIsAnErrorWithinTheBudget(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), DefaultBudget), DefaultBudget)
	tier := user("42", still)
	credit := func() error {
		_, _, err := s.Credit(t.Context(), tier.Key, tier.Limit, -enforce.Token)
		return err
	}
	eventually(t, "redis answers", testTimeout, func() bool { return credit() == nil })
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	watch := awake.Start()
	defer watch.Stop()
	var took []time.Duration
	for range tripAfter {
		start := watch.Now()
		if err := credit(); err == nil {
			t.Error("no error")
		}
		took = append(took, watch.Since(start))
	}
	wantWithin(t, "credits", DefaultBudget, took)
	if s.State() == Up {
		t.Errorf("the breaker is closed after %d failures", tripAfter)
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
}
