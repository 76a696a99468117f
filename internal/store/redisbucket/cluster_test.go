package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func clusterNodes(t *testing.T, n int) (*Store, []*proxy) {
	t.Helper()
	nodes := startCluster(t, n)
	var proxies []*proxy
	for _, node := range nodes {
		proxies = append(proxies, node.proxy)
	}
	return New(client(t, clusterURL(nodes), testTimeout), testTimeout), proxies
}

func clusterURL(nodes []*clusterNode) string {
	return "redis://" + nodes[0].proxy.addr() + "?cluster=true"
}

type clusterNode struct {
	addr, busPort string // its own
	proxy         *proxy
	process       *os.Process
	direct        *redis.Client
}

func startCluster(t *testing.T, n int) []*clusterNode {
	t.Helper()
	var nodes []*clusterNode
	for range n {
		nodes = append(nodes, startClusterNode(t))
	}
	for i, node := range nodes {
		first, last := i*16384/n, (i+1)*16384/n-1
		node.mustDo(t, "cluster", "addslotsrange", first, last)
		node.mustDo(t, "cluster", "set-config-epoch", i+1)
		if i > 0 {
			node.mustMeet(t, nodes[0])
		}
	}
	for _, node := range nodes {
		node.mustKnow(t, n)
	}
	return nodes
}

func startClusterNode(t *testing.T) *clusterNode {
	t.Helper()
	port, bus := reservePort(t), reservePort(t)
	node := &clusterNode{addr: port.Addr(), busPort: bus.String(), proxy: newProxy(t, port.Addr())}
	_, announced, _ := net.SplitHostPort(node.proxy.addr())
	cmd := exec.CommandContext(t.Context(), "redis-server", "--port", port.String(), "--cluster-port", bus.String(),
		"--bind", "127.0.0.1",
		"--cluster-enabled", "yes", "--cluster-announce-port", announced, "--cluster-require-full-coverage", "no",
		"--cluster-node-timeout", "60000", "--repl-diskless-sync-delay", "0", "--dir", t.TempDir(), "--save", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	node.process = cmd.Process
	node.direct = redis.NewClient(&redis.Options{Addr: node.addr})
	t.Cleanup(func() { _ = node.direct.Close() })
	eventually(t, "a node answers", testTimeout, func() bool { return node.direct.Ping(t.Context()).Err() == nil })
	return node
}

func (n *clusterNode) mustDo(t *testing.T, args ...any) {
	t.Helper()
	if err := n.direct.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

func (n *clusterNode) mustMeet(t *testing.T, other *clusterNode) {
	t.Helper()
	host, port, _ := strings.Cut(other.addr, ":")
	n.mustDo(t, "cluster", "meet", host, port, other.busPort)
}

func (n *clusterNode) mustKnow(t *testing.T, nodes int) {
	t.Helper()
	eventually(t, "the cluster is whole", testTimeout, func() bool {
		info, err := n.direct.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, "cluster_slots_assigned:16384\r") &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes))
	})
}

func reservePort(t *testing.T) *devdb.Port {
	t.Helper()
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return port
}

func TestAClusterAnswersABatchOfManyTenants(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 3}
	checks := ofTenants(40, 200, limit)
	for i, check := range mustTake(t, s, checks) {
		if want := i/40 < 3; check.Allowed != want {
			t.Errorf("check %d of tenant %d: allowed %t, want %t", i/40, i%40, check.Allowed, want)
		}
	}
	if !mustTake(t, s, []enforce.BucketCheck{fourTiers(1, limit)})[0].Allowed {
		t.Error("a check of four tiers was denied")
	}
}

func TestTenantsShareScriptsOfOneServerAlone(t *testing.T) {
	t.Parallel()
	const tenants = 5
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 100}
	_, server := generous(t)
	cluster, proxies := clusterNodes(t, 1)
	node := New(client(t, "redis://"+proxies[0].addr(), testTimeout), testTimeout)
	for name, test := range map[string]struct {
		store, counted *Store // counted can be asked how many scripts there were
		scripts        int64
	}{
		"a server":                           {server, server, 1},
		"a cluster":                          {cluster, node, tenants},
		"a cluster, by a URL as of a server": {node, node, tenants},
	} {
		mustTake(t, test.store, ofTenants(tenants, 3*tenants, limit)) // from here on Redis knows the script
		mustCheck(t, test.store)
		before := scriptCalls(t, test.counted)
		mustTake(t, test.store, ofTenants(tenants, 3*tenants, limit))
		if got := scriptCalls(t, test.counted) - before; got != test.scripts {
			t.Errorf("%s: %d scripts, want %d", name, got, test.scripts)
		}
	}
}

// A cluster's node poses as one server, as a proxy before a cluster can.
func TestKeysThatAreNotKeptTogetherAreAskedForApart(t *testing.T) {
	t.Parallel()
	_, proxies := clusterNodes(t, 1)
	s := New(client(t, "redis://"+proxies[0].addr(), testTimeout), testTimeout)
	s.standalone.Store(true)
	const tenants, callers, burst = 20, 8, 3
	var allowed [tenants]atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			checks := ofTenants(tenants, 4*tenants, enforce.Limit{Rate: rules.MinRate, Burst: burst})
			if err := s.Take(context.Background(), checks); err != nil {
				t.Error(err)
			}
			for i := range checks {
				if checks[i].Allowed {
					allowed[i%tenants].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for tenant := range allowed {
		if got := allowed[tenant].Load(); got != burst {
			t.Errorf("tenant %d: %d checks passed a burst of %d", tenant, got, burst)
		}
	}
	if !s.crossSlot.Load() || s.State() != Up {
		t.Errorf("the store would try again: %t, and thinks that Redis is %s", !s.crossSlot.Load(), s.State())
	}
}

func TestWhatIsSaidOfKeysThatAreNotKeptTogether(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"CROSSSLOT Keys in request don't hash to the same slot":   true,
		"ERR eval/evalsha command keys must be in same slot":      true,
		"ERR Cross-slot queries are not supported":                true,
		"OOM command not allowed when used memory > 'maxmemory'.": false,
		"NOSCRIPT No matching script.":                            false,
	} {
		if got := isCrossSlot(fmt.Errorf("take: %w", refusalText(text))); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if isCrossSlot(errors.New("no slot is free")) {
		t.Error("what Redis did not say is taken for its refusal")
	}
}

type refusalText string

func (r refusalText) Error() string { return string(r) }
func (refusalText) RedisError()     {}

func TestALostReplyOfAClusterChargesAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, tenants := range map[string]int{"one script": 1, "several scripts": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxies := clusterNodes(t, 1)
			loseReply(t, s, s, proxies[0], tenants)
		})
	}
}

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
