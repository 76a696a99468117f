package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

type editedStore struct {
	mu       sync.Mutex
	fails    bool
	failsFor rules.TenantID
	panics   int // how often it does, before it answers
	walks    []string
	looks    []string
	widest   int // the most edits of one walk
	calls    int // of ApplyEdits
}

func (s *editedStore) seen(fails bool) (walks, looks []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
	return slices.Clone(s.walks), slices.Clone(s.looks)
}

func (s *editedStore) Take(_ context.Context, checks []BucketCheck) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mayPanic()
	failed := s.err()
	for i, check := range checks {
		if check.Tiers[0].Key.Tenant == s.failsFor {
			failed = errors.New("one node is away")
			continue
		}
		checks[i].Answered = !s.fails
		s.looks = append(s.looks, fmt.Sprintf("%s at %v, cost %v", check.Tiers[0].Key.Text(), check.Tiers[0].Limit.Rate,
			check.Cost))
	}
	return failed
}

func (s *editedStore) ApplyEdits(_ context.Context, edits []Edit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mayPanic()
	s.widest = max(s.widest, len(edits))
	s.calls++
	for i := range edits {
		limit, ok := edits[i].LimitOf("42", false)
		_, hashed := edits[i].LimitOf("digest", true)
		s.walks = append(s.walks, fmt.Sprintf("rule %d: 42 at %v, %t, of all %t", edits[i].Rule, limit.Rate, ok,
			hashed))
	}
	return s.err()
}

func (s *editedStore) mayPanic() {
	if s.panics--; s.panics >= 0 {
		panic("by the test")
	}
}

func (s *editedStore) err() error {
	if s.fails {
		return errors.New("away")
	}
	return nil
}

func settledRules(t *testing.T, overrides ...rules.Override) *snapshot.Snapshot {
	t.Helper()
	rows := snapshot.Rows{Overrides: overrides}
	for tenant := rules.TenantID(1); tenant <= 2; tenant++ {
		rows.Tenants = append(rows.Tenants, rules.Tenant{ID: tenant, Settings: rules.DefaultSettings()})
		for i, text := range []string{"user:{user_id}", "user:{user_id}:endpoint:{endpoint}", "global"} {
			pattern, err := rules.ParsePattern(text)
			if err != nil {
				t.Fatal(err)
			}
			rows.Rules = append(rows.Rules, rules.Rule{
				ID: rules.RuleID(i + 1), TenantID: tenant, Pattern: pattern, Active: true, Version: 1,
				Mode: rules.ModeEnforce, Action: rules.ActionLimit, RatePerSecond: float64(i + 1), Burst: 100,
			})
		}
	}
	return snapshot.New(rows)
}

func startApplier(t *testing.T, store *editedStore, slowed []rules.Slowdown) (e *EditApplier, stop func()) {
	t.Helper()
	latest := settledRules(t)
	e = NewEditApplier(func() *snapshot.Snapshot { return latest }, 0, slog.New(slog.DiscardHandler), store)
	e.Add(slowed)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	return e, func() { cancel(); <-ended }
}

func ofUsers(tenant rules.TenantID, rule rules.RuleID, users int) []rules.Slowdown {
	slowed := make([]rules.Slowdown, users)
	for i := range slowed {
		slowed[i] = rules.Slowdown{Tenant: tenant, Rule: rule, User: fmt.Sprint(i), To: 5}
	}
	return slowed
}

func TestManyEditsOfOneTenantHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &editedStore{}
		e, stop := startApplier(t, store,
			append(ofUsers(1, 1, 100_000), rules.Slowdown{Tenant: 2, Rule: 1, User: "other", To: 5}))
		after(2 * time.Second)
		_, looks := store.seen(false)
		if at := slices.Index(looks, "1:other at 1, cost 0"); at < 0 || at > 10_000 {
			t.Errorf("the other tenant's bucket was looked at after %d", at)
		}
		e.Add([]rules.Slowdown{{Tenant: 2, Rule: 1, User: "later", To: 6}, {Tenant: 2, Rule: 3, To: 7}})
		after(3 * time.Second)
		walks, looks := store.seen(false)
		if len(looks) >= 100_000 || !slices.Contains(looks, "1:later at 1, cost 0") || len(walks) == 0 {
			t.Errorf("after %d looks the other tenant's later edits are not settled", len(looks))
		}
		after(time.Minute)
		if _, looks := store.seen(false); len(looks) != 100_002 {
			t.Errorf("%d looks at 100,002 buckets", len(looks))
		}
		stop()
	})
}

func TestBucketsThatCannotBeReachedHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &editedStore{failsFor: 1}
		e, stop := startApplier(t, store, append(ofUsers(1, 1, 2*looksPerCall), ofUsers(2, 1, 2*looksPerCall)...))
		after(2 * applyFor)
		if _, looks := store.seen(false); len(looks) != 2*looksPerCall || e.Abandoned() != 2*looksPerCall {
			t.Errorf("%d looks at %d buckets that can be reached, and %d are given up", len(looks), 2*looksPerCall,
				e.Abandoned())
		}
		stop()
	})
}

func TestManyEditsOfARuleAreFewForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &editedStore{}
		_, stop := startApplier(t, store, append(ofUsers(1, 2, 10_000), ofUsers(2, 2, 3)...))
		after(2 * time.Second)
		if walks, _ := store.seen(false); store.widest > 100 || len(walks) != store.widest || len(walks) < 4 {
			t.Errorf("%d edits in one walk, and %d in all", store.widest, len(walks))
		}
		stop()
	})
}

func TestEditsThatSlowAreSettledOnceOthersHaveReadThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		override := rules.Override{
			TenantID: 1, RuleID: 2, UserID: "43", RatePerSecond: 0.5, Burst: 100,
			InForceSince: time.Now(),
		}
		latest := settledRules(t, override)
		local, shared := &editedStore{}, &editedStore{fails: true}
		e := NewEditApplier(func() *snapshot.Snapshot { return latest }, 2*time.Second, slog.New(slog.DiscardHandler),
			local, shared)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); e.Run(ctx) }()
		e.Add([]rules.Slowdown{
			{Tenant: 1, Rule: 1, To: 5},
			{Tenant: 1, Rule: 1, User: "42", To: 6},
			{Tenant: 1, Rule: 2, User: "43", To: 7},
			{Tenant: 1, Rule: 9, To: 8}, // it was removed since
			{Tenant: 1, Rule: 1, To: 5}, // again
		})
		after(1900 * time.Millisecond)
		if walks, looks := local.seen(false); len(walks)+len(looks) > 0 {
			t.Errorf("settled before others can have read the edit: %q, %q", walks, looks)
		}
		after(3 * time.Second)
		_, looks := local.seen(false)
		if _, tried := shared.seen(false); !slices.Contains(looks, "1:42 at 1, cost 0") || len(tried) < 2 {
			t.Errorf("looked at %q and, where that fails, at %q", looks, tried)
		}
		after(2 * time.Second)
		want := []string{"rule 1: 42 at 1, true, of all true", "rule 2: 42 at 0, false, of all false"}
		walks, looks := shared.seen(false)
		if got := walks[len(walks)-3:]; !slices.Equal(got[:2], want) {
			t.Errorf("walked for %q, want %q", got, want)
		}
		after(time.Minute)
		if w, l := shared.seen(false); len(w) != len(walks) || len(l) != len(looks) || e.Abandoned() != 0 {
			t.Errorf("settled again: %q, %q; %d lost", w[len(walks):], l[len(looks):], e.Abandoned())
		}
		cancel()
		<-ended
	})
}

func TestARaiseThatExpiresIsSettledInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		latest := settledRules(t, rules.Override{
			TenantID: 1, RuleID: 1, UserID: "42", RatePerSecond: 1000, Burst: 100,
			InForceSince: time.Now().Add(-time.Hour), ExpiresAt: time.Now().Add(30 * time.Second),
		})
		store := &editedStore{}
		e := NewEditApplier(func() *snapshot.Snapshot { return latest }, 2*time.Second, slog.New(slog.DiscardHandler),
			store)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); e.Run(ctx) }()
		after(29 * time.Second)
		if _, looks := store.seen(false); len(looks) != 0 {
			t.Errorf("before the expiry: %q", looks)
		}
		after(6 * time.Second)
		if _, looks := store.seen(false); !slices.Equal(looks, []string{"1:42 at 1, cost 0"}) {
			t.Errorf("after the expiry: %q", looks)
		}
		cancel()
		<-ended
	})
}

func TestAnEditThatCannotBeSettledIsGivenUpAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		latest := settledRules(t)
		e := NewEditApplier(func() *snapshot.Snapshot { return latest }, 0, slog.New(slog.DiscardHandler),
			&editedStore{fails: true})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); e.Run(ctx) }()
		e.Add([]rules.Slowdown{{Tenant: 1, Rule: 1, To: 5}, {Tenant: 1, Rule: 1, User: "42", To: 6}})
		after(2 * applyFor)
		cancel()
		<-ended
		if e.Abandoned() != 2 || len(e.pending) != 0 {
			t.Errorf("%d lost, %d pending", e.Abandoned(), len(e.pending))
		}
	})
}

// A hundred rules that step down every ten seconds would otherwise keep a walk running forever.
func TestStepsOfATenantWaitForAWalkAMinuteAndEditsOfOthersDoNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &editedStore{}
		e, stop := startApplier(t, store, nil)
		const minutes = 5
		for second := range int64(minutes * 60) {
			e.Add([]rules.Slowdown{{Tenant: 1, Rule: rules.RuleID(1 + second%3), To: second, IsStep: true}})
			after(time.Second)
		}
		if store.calls < minutes-1 || store.calls > minutes {
			t.Errorf("%d walks in %d minutes", store.calls, minutes)
		}
		walks, _ := store.seen(false)
		e.Add([]rules.Slowdown{{Tenant: 2, Rule: 3, To: 7}})
		after(2 * applyTick)
		if later, _ := store.seen(false); len(later) == len(walks) {
			t.Error("another tenant's edit waits for the steps")
		}
		stop()
	})
}

func TestEditsWhoseSettlementPanicsAreSettledLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, slowed := range map[string]rules.Slowdown{
			"a walk": {Tenant: 1, Rule: 3, To: 5}, "a look": {Tenant: 1, Rule: 1, User: "42", To: 5},
		} {
			store := &editedStore{panics: 1}
			_, stop := startApplier(t, store, []rules.Slowdown{slowed})
			after(5 * time.Second)
			if walks, looks := store.seen(false); len(walks)+len(looks) != 1 {
				t.Errorf("after the panic of %s there were %d walks and %d looks", name, len(walks), len(looks))
			}
			stop()
		}
	})
}
