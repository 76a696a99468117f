package redisbucket

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func (n *clusterNode) slotOf(t *testing.T, tenant rules.TenantID) int {
	t.Helper()
	return n.slotOfKey(t, fmt.Sprintf("{s%d}", tenant))
}

func (n *clusterNode) slotOfKey(t *testing.T, key string) int {
	t.Helper()
	slot, err := n.direct.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

func tenantsOf(t *testing.T, node *clusterNode, masters, each int) [][]rules.TenantID {
	t.Helper()
	tenants := make([][]rules.TenantID, masters)
	for tenant, found := rules.TenantID(1), 0; found < masters*each; tenant++ {
		of := node.slotOf(t, tenant) * masters / 16384
		if len(tenants[of]) < each {
			tenants[of] = append(tenants[of], tenant)
			found++
		}
	}
	return tenants
}

func ofTenant(tenant rules.TenantID, subjects ...string) []enforce.BucketCheck {
	check := enforce.BucketCheck{Cost: enforce.Token}
	for _, subject := range subjects {
		tier := user(subject, still)
		tier.Key.Tenant = tenant
		check.Tiers = append(check.Tiers, tier)
	}
	return []enforce.BucketCheck{check}
}

type shardLoad struct {
	stop             chan struct{}
	callers          sync.WaitGroup
	answered, failed []atomic.Int64 // by master
}

func startShardLoad(s *Store, tenants [][]rules.TenantID) *shardLoad {
	l := &shardLoad{
		stop: make(chan struct{}), answered: make([]atomic.Int64, len(tenants)),
		failed: make([]atomic.Int64, len(tenants)),
	}
	for master := range tenants {
		for _, tenant := range tenants[master] {
			for caller := range 8 {
				l.callers.Go(func() { l.take(s, master, tenant, fmt.Sprint(caller)) })
			}
		}
	}
	return l
}

func (l *shardLoad) take(s *Store, master int, tenant rules.TenantID, subject string) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		if s.Take(context.Background(), ofTenant(tenant, subject)) == nil {
			l.answered[master].Add(1)
		} else {
			l.failed[master].Add(1)
		}
		select {
		case <-l.stop:
			return
		case <-pace.C:
		}
	}
}

// Nearly all checks of healthy masters are answered, and nearly none of the others.
func (l *shardLoad) mustServe(t *testing.T, healthy ...bool) {
	t.Helper()
	answered, failed := make([]int64, len(healthy)), make([]int64, len(healthy))
	for i := range healthy {
		answered[i], failed[i] = l.answered[i].Load(), l.failed[i].Load()
	}
	for i, is := range healthy {
		eventually(t, "a hundred checks", testTimeout, func() bool {
			return l.answered[i].Load()-answered[i]+l.failed[i].Load()-failed[i] >= 500
		})
		answered, failed := l.answered[i].Load()-answered[i], l.failed[i].Load()-failed[i]
		t.Logf("master %d (healthy: %t): %d answered, %d failed", i, is, answered, failed)
		if is && failed > answered/20 || !is && answered > failed/20 {
			t.Errorf("master %d (healthy: %t) answered %d checks, and %d failed", i, is, answered, failed)
		}
	}
}

func TestAMasterThatFailsDegradesItsOwnTenantsAlone(t *testing.T) {
	t.Parallel()
	const budget = time.Second
	nodes := startCluster(t, 3)
	s := New(client(t, clusterURL(nodes), budget), budget)
	load := startShardLoad(s, tenantsOf(t, nodes[0], 3, 2))
	defer load.callers.Wait()
	defer close(load.stop)
	for i := range nodes {
		eventually(t, "all masters are asked", testTimeout, func() bool { return load.answered[i].Load() > 50 })
	}
	if err := nodes[0].process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the frozen master fails", testTimeout, func() bool { return load.failed[0].Load() > 50 })
	load.mustServe(t, false, true, true)
	if err := nodes[1].process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the killed master fails", testTimeout, func() bool { return load.failed[1].Load() > 50 })
	load.mustServe(t, false, false, true)
	if err := nodes[0].process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before := load.answered[0].Load()
	eventually(t, "the frozen master serves again", testTimeout,
		func() bool { return load.answered[0].Load() > before+50 })
	before, failed := load.answered[0].Load(), load.failed[0].Load()
	eventually(t, "the frozen master serves every check", testTimeout, func() bool {
		if now := load.failed[0].Load(); now != failed {
			before, failed = load.answered[0].Load(), now
		}
		return load.answered[0].Load() > before+50
	})
	load.mustServe(t, true, false, true)
}

func TestAMasterThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	const budget = 250 * time.Millisecond
	nodes := startCluster(t, 2)
	s := New(client(t, clusterURL(nodes), budget), budget)
	tenants := tenantsOf(t, nodes[0], 2, 1)
	lost, healthy := nodes[0].proxy.addr(), nodes[1].proxy.addr()
	for i := range nodes {
		eventually(t, "a check is answered", testTimeout,
			func() bool { return s.Take(t.Context(), ofTenant(tenants[i][0], "42")) == nil })
	}
	if err := nodes[0].process.Kill(); err != nil {
		t.Fatal(err)
	}
	var err error
	for range tripAfter {
		err = s.Take(t.Context(), ofTenant(tenants[0][0], "42"))
	}
	if err == nil || !strings.Contains(err.Error(), lost) {
		t.Errorf("the error of a check is %v, want one that names %s", err, lost)
	}
	want := map[string]State{lost: Down, healthy: Up}
	if got := statesOf(s.Nodes()); !maps.Equal(got, want) || s.State() != Partial {
		t.Errorf("by their breakers nodes are %v and together %s, want %v", got, s.State(), want)
	}
	eventually(t, "a ping tells the nodes apart", testTimeout,
		func() bool { return maps.Equal(statesOf(s.Ping(t.Context())), want) })
	nodes[1].mustDo(t, "config", "set", "maxmemory-policy", "allkeys-lru")
	if warnings, err := s.CheckSettings(t.Context()); err != nil || len(warnings) != 1 ||
		!strings.Contains(warnings[0], healthy) {
		t.Errorf("settings: %v, %v", warnings, err)
	}
}

func statesOf(nodes []Node) map[string]State {
	states := map[string]State{}
	for _, n := range nodes {
		states[n.Addr] = n.State
	}
	return states
}

func TestWhatNodesAreTogether(t *testing.T) {
	t.Parallel()
	for want, nodes := range map[State][][]State{
		Up:      {{Up}, {Up, Up}},
		Down:    {{Down}, {Down, Down}},
		Probing: {{Probing}, {Probing, Down}},
		Partial: {{Up, Down}, {Up, Probing, Up}},
	} {
		for _, states := range nodes {
			var all []Node
			for _, state := range states {
				all = append(all, Node{State: state})
			}
			if got := Summary(all); got != want {
				t.Errorf("%v together are %s, want %s", states, got, want)
			}
		}
	}
}

func TestChecksFollowAFailover(t *testing.T) {
	t.Parallel()
	const budget = 250 * time.Millisecond
	nodes := startCluster(t, 2)
	replica := startClusterNode(t)
	replica.mustMeet(t, nodes[0])
	id, err := nodes[0].direct.ClusterMyID(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range append(nodes, replica) {
		node.mustKnow(t, 3)
	}
	eventually(t, "a node becomes a replica", testTimeout,
		func() bool { return replica.direct.ClusterReplicate(t.Context(), id).Err() == nil })
	eventually(t, "the replica follows", testTimeout, func() bool {
		info, err := replica.direct.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	s := New(client(t, clusterURL(nodes), budget), budget)
	load := startShardLoad(s, tenantsOf(t, nodes[0], 2, 1))
	defer load.callers.Wait()
	defer close(load.stop)
	for i := range nodes {
		eventually(t, "all masters are asked", testTimeout, func() bool { return load.answered[i].Load() > 50 })
	}
	other := load.failed[1].Load()
	if err := nodes[0].process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the killed master fails", testTimeout, func() bool { return load.failed[0].Load() > 50 })
	replica.mustDo(t, "cluster", "failover", "takeover")
	before := load.answered[0].Load()
	t.Logf("enforcing on the new master after %v", eventually(t, "the new master serves", 3*time.Second,
		func() bool { return load.answered[0].Load() > before }))
	load.mustServe(t, true, true)
	if failed := load.failed[1].Load() - other; failed > load.answered[1].Load()/20 {
		t.Errorf("%d checks of the other master failed meanwhile", failed)
	}
	want := map[string]State{replica.proxy.addr(): Up, nodes[1].proxy.addr(): Up}
	eventually(t, "the former master is forgotten", testTimeout, func() bool {
		s.Ping(t.Context())
		return maps.Equal(statesOf(s.Nodes()), want)
	})
}

func TestASlotThatMovesFailsNoMoreThanTheChecksItMust(t *testing.T) {
	t.Parallel()
	m := startMigration(t)
	s, from, to := m.store, m.from, m.to
	for range 2 * tripAfter {
		mustTake(t, s, ofTenant(m.tenant, "new"))   // ASK: the new node has it
		mustTake(t, s, ofTenant(m.tenant, "stays")) // the old node still has it
		if err := s.Take(context.Background(), ofTenant(m.tenant, "stays", "new")); !isTryAgain(err) {
			t.Errorf("a check with buckets on both sides: %v", err)
		}
		mustTake(t, s, ofTenant(m.resting, "42"))
	}
	s.Ping(t.Context()) // so that the store knows both
	if got := statesOf(s.Nodes()); got[from.proxy.addr()] != Up || got[to.proxy.addr()] != Up {
		t.Errorf("nodes are %v", got)
	}
	host, port, _ := strings.Cut(to.addr, ":")
	from.mustDo(t, "migrate", host, port, string(appendKey(nil, "", ofTenant(m.tenant, "stays")[0].Tiers[0].Key)), 0,
		5000)
	for _, node := range []*clusterNode{to, from} {
		node.mustDo(t, "cluster", "setslot", m.slot, "node", m.id)
	}
	for range 2 * tripAfter { // MOVED, until the driver knows
		check := mustTake(t, s, ofTenant(m.tenant, "stays", "new"))[0]
		if check.Tiers[0].Bucket.Level.Micros.Whole() >= still.Burst-2*tripAfter {
			t.Error("a bucket lost what was taken from it")
		}
	}
}

func TestASlotOfNobodyFailsOnlyItsTenants(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 1)
	s := New(client(t, clusterURL(nodes), testTimeout), testTimeout)
	const homeless, other = 1, 2
	mustTake(t, s, ofTenant(homeless, "42"))
	mustTake(t, s, ofTenant(other, "42"))
	slot := nodes[0].slotOf(t, homeless)
	nodes[0].mustDo(t, "cluster", "delslots", slot)
	for range 2 * tripAfter {
		if err := s.Take(context.Background(), ofTenant(homeless, "42")); !isUnserved(err) {
			t.Errorf("a check whose slot nobody serves: %v", err)
		}
		both := append(ofTenant(homeless, "42"), ofTenant(other, "42")...)
		if err := s.Take(context.Background(), both); !isUnserved(err) || both[0].Answered || !both[1].Answered {
			t.Errorf("both: %v, answered %t and %t", err, both[0].Answered, both[1].Answered)
		}
		mustTake(t, s, ofTenant(other, "42"))
	}
	nodes[0].mustDo(t, "config", "set", "cluster-require-full-coverage", "yes")
	nodes[0].mustDo(t, "cluster", "delslots", (slot+1)%16384) // so that the node looks at the setting
	var err error
	eventually(t, "the whole cluster is down", testTimeout, func() bool {
		err = s.Take(context.Background(), ofTenant(other, "42"))
		return err != nil
	})
	for range tripAfter {
		err = s.Take(context.Background(), ofTenant(other, "42"))
	}
	if s.State() == Up {
		t.Errorf("the breaker is closed though the cluster is down: %v", err)
	}
	nodes[0].mustDo(t, "cluster", "addslots", slot, (slot+1)%16384)
	for _, tenant := range []rules.TenantID{homeless, other} {
		eventually(t, "the store enforces again", testTimeout,
			func() bool { return s.Take(context.Background(), ofTenant(tenant, "42")) == nil })
	}
}

func TestWhatOpensABreaker(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"CLUSTERDOWN The cluster is down":                         true,
		"CLUSTERDOWN Hash slot not served":                        false,
		"TRYAGAIN Multiple keys request during rehashing of slot": false,
		"MOVED 3999 127.0.0.1:6381":                               false,
		"ASK 3999 127.0.0.1:6381":                                 false,
		"CROSSSLOT Keys in request don't hash to the same slot":   false,
		"OOM command not allowed when used memory > 'maxmemory'.": true,
		"LOADING Redis is loading the dataset in memory":          true,
		"MASTERDOWN Link with MASTER is down":                     true,
	} {
		if got := isFailure(fmt.Errorf("take: %w", refusalText(text))); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if !isFailure(io.EOF) || isFailure(nil) {
		t.Error("a lost connection is a failure, and an answer is none")
	}
}
