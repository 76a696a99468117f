package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/combine"
)

type loseLastReply struct{ isDone *atomic.Bool }

func (loseLastReply) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (loseLastReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l loseLastReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if !l.isDone.Swap(true) {
			cmds[len(cmds)-1].SetErr(io.ErrUnexpectedEOF)
		}
		return err
	}
}

func tiersApart() []enforce.Tier {
	return []enforce.Tier{ofTenant(1, "42")[0].Tiers[0], ofTenant(2, "42")[0].Tiers[0]}
}

func TestAScriptThatMayHaveRunIsNotSentAgain(t *testing.T) {
	t.Parallel()
	const victim = 1 // the tenant whose reply is lost
	perhapsTaken := func(n int) (checks []enforce.BucketCheck) {
		for i := range n {
			checks = append(checks, ofTenant(victim, fmt.Sprint(i))...)
		}
		return checks
	}
	poser := func(t *testing.T) *Store { // a cluster's node that poses as one server
		_, proxies := clusterNodes(t, 1)
		s := New(client(t, "redis://"+proxies[0].addr(), testTimeout), testTimeout)
		s.standalone.Store(true)
		return s
	}
	for name, prepare := range map[string]func(t *testing.T) (s *Store, refused []enforce.BucketCheck){
		"the keys are in several slots": func(t *testing.T) (*Store, []enforce.BucketCheck) {
			return poser(t), ofTenants(maxChecks, maxChecks, still)
		},
		"the keys of one check are in several slots": func(t *testing.T) (*Store, []enforce.BucketCheck) {
			apart := enforce.BucketCheck{Cost: enforce.Token, Tiers: tiersApart()}
			return poser(t), append([]enforce.BucketCheck{apart}, ofTenants(maxChecks, maxChecks-1, still)...)
		},
		"the slot has moved": func(t *testing.T) (*Store, []enforce.BucketCheck) {
			nodes := startCluster(t, 2)
			s := New(client(t, clusterURL(nodes), testTimeout), testTimeout)
			at := nodes[0].slotOf(t, victim) * 2 / 16384
			moving := tenantsOf(t, nodes[0], 2, 2)[at][1]
			mustTake(t, s, ofTenant(victim, "so that the store knows the masters"))
			moveSlot(t, nodes, nodes[0].slotOf(t, moving), at, 1-at)
			return s, ofTenant(moving, "42")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, refused := prepare(t)
			checks := slices.Concat(refused, perhapsTaken(3))
			mustTake(t, s, ofTenant(victim, "so that Redis knows the script"))
			s.nodeOf(victim).client.AddHook(loseLastReply{new(atomic.Bool)})
			if err := s.Take(context.Background(), checks); err == nil || errors.Is(err, enforce.ErrNothingTaken) {
				t.Errorf("a lost reply is the error %v", err)
			}
			for i, check := range mustTake(t, s, perhapsTaken(3)) { // which takes once more
				if checks[len(refused)+i].Answered {
					t.Errorf("check %d is answered though its reply was lost", i)
				}
				if taken := still.Burst - check.Tiers[0].Bucket.Level.Micros.Whole(); taken != 2 {
					t.Errorf("check %d took %d tokens, want one", i, taken-1)
				}
			}
		})
	}
}

func TestACheckThatNoScriptDecidesFailsNoOther(t *testing.T) {
	t.Parallel()
	_, proxies := clusterNodes(t, 1)
	s := New(client(t, "redis://"+proxies[0].addr(), testTimeout), testTimeout)
	s.standalone.Store(true)
	tiers := tiersApart()
	apart, plain := one(tiers...), one(tiers[0])
	calls := []*combine.Call{{Sending: apart}, {Sending: plain}}
	s.single.send(&combine.Batch{Calls: calls, Deadline: time.Now().Add(testTimeout)})
	if apart[0].Answered || !isCrossSlot(calls[0].Err) || !errors.Is(calls[0].Err, enforce.ErrNothingTaken) {
		t.Errorf("a check of two slots: answered %t, %v", apart[0].Answered, calls[0].Err)
	}
	if !plain[0].Answered || calls[1].Err != nil {
		t.Errorf("a check of one of them: answered %t, %v", plain[0].Answered, calls[1].Err)
	}
}

// migrating is a slot on the move: a bucket is still at the first master, and new ones go to the second.
type migrating struct {
	store    *Store
	from, to *clusterNode
	slot     int
	id       string // of to
	tenant   rules.TenantID
	resting  rules.TenantID // another one of the first master
}

func startMigration(t *testing.T) *migrating {
	t.Helper()
	nodes := startCluster(t, 2)
	m := &migrating{store: New(client(t, clusterURL(nodes), testTimeout), testTimeout), from: nodes[0], to: nodes[1]}
	tenants := tenantsOf(t, m.from, 2, 2)
	m.tenant, m.resting = tenants[0][0], tenants[0][1]
	mustTake(t, m.store, ofTenant(m.tenant, "stays"))
	m.slot = m.from.slotOf(t, m.tenant)
	ids := [2]string{}
	for i, node := range nodes {
		var err error
		if ids[i], err = node.direct.ClusterMyID(t.Context()).Result(); err != nil {
			t.Fatal(err)
		}
	}
	m.id = ids[1]
	m.to.mustDo(t, "cluster", "setslot", m.slot, "importing", ids[0])
	m.from.mustDo(t, "cluster", "setslot", m.slot, "migrating", ids[1])
	return m
}

func TestChecksOfASlotThatMovesFailAlone(t *testing.T) {
	t.Parallel()
	m := startMigration(t)
	var checks []enforce.BucketCheck
	for _, subjects := range [][]string{{"stays", "new"}, {"stays"}, {"new"}, {"stays", "another"}, {"third"}} {
		checks = append(checks, ofTenant(m.tenant, subjects...)...)
	}
	for range 3 {
		err := m.store.Take(context.Background(), checks)
		if !isTryAgain(err) || !errors.Is(err, enforce.ErrNothingTaken) {
			t.Errorf("checks with buckets on both sides: %v", err)
		}
		for i := range checks {
			if want := len(checks[i].Tiers) == 1; checks[i].Answered != want {
				t.Errorf("check %d: answered %t", i, checks[i].Answered)
			}
		}
	}
	for i, want := range map[int]int64{1: 4, 2: 3, 4: 3} {
		if taken := still.Burst - checks[i].Tiers[0].Bucket.Level.Micros.Whole(); taken != want {
			t.Errorf("check %d took %d tokens in all, want %d", i, taken, want)
		}
	}
}

func TestNoReportIsLostWhileASlotMoves(t *testing.T) {
	t.Parallel()
	m := startMigration(t)
	var leases []enforce.Lease
	for _, subject := range []string{"stays", "new", "another"} {
		tier := ofTenant(m.tenant, subject)[0].Tiers[0]
		leases = append(leases, enforce.Lease{
			Key: tier.Key, Limit: still,
			Ask: enforce.Ask{Need: enforce.Token, Want: enforce.Token},
		})
	}
	if err := m.store.Lease(t.Context(), leases); err != nil {
		t.Fatal(err)
	}
	for i := range leases {
		if g := leases[i].Grant; !leases[i].Answered || g.Amount != enforce.Token || g.Out != enforce.Token {
			t.Errorf("lease %d: answered %t, %+v", i, leases[i].Answered, g)
		}
		leases[i].Ask = enforce.Ask{
			Epoch: leases[i].Grant.Epoch, Presence: leases[i].Grant.Slot,
			Returns: []enforce.Return{{Slot: leases[i].Grant.Slot, Spent: enforce.Token}},
		}
	}
	if err := m.store.Lease(t.Context(), leases); err != nil {
		t.Fatal(err)
	}
	for i := range leases {
		check := enforce.BucketCheck{Look: true, Tiers: []enforce.Tier{{Key: leases[i].Key, Limit: still}}}
		if out := mustTake(t, m.store, []enforce.BucketCheck{check})[0].Tiers[0].Out; out != 0 {
			t.Errorf("%s of bucket %d are still lent", out, i)
		}
	}
}
