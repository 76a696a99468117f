package redisbucket

import (
	"cmp"
	"context"
	"fmt"
	"net"
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

// clusterNodes starts Redis servers in cluster mode that share the slots evenly, each behind a
// proxy, under whose address the cluster knows it. It returns a store on the cluster.
func clusterNodes(t *testing.T, n int) (*Store, []*proxy) {
	t.Helper()
	var direct []*redis.Client
	var busPort string // of the first node
	var proxies []*proxy
	for range n {
		addr, bus := startClusterNode(t)
		busPort = cmp.Or(busPort, bus)
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		direct = append(direct, rdb)
		proxies = append(proxies, newProxy(t, addr))
	}
	for i, rdb := range direct {
		eventually(t, "a node answers", patience, func() bool { return rdb.Ping(t.Context()).Err() == nil })
		_, port, _ := net.SplitHostPort(proxies[i].addr())
		first, last := i*16384/n, (i+1)*16384/n-1
		for _, args := range [][]any{
			{"config", "set", "cluster-announce-port", port},
			{"cluster", "addslotsrange", first, last},
			{"cluster", "set-config-epoch", i + 1},
		} {
			if err := rdb.Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("%v: %v", args, err)
			}
		}
	}
	for i, rdb := range direct[1:] {
		host, port, _ := strings.Cut(direct[0].Options().Addr, ":")
		if err := rdb.Do(t.Context(), "cluster", "meet", host, port, busPort).Err(); err != nil {
			t.Fatalf("node %d meets the first: %v", i+1, err)
		}
	}
	for _, rdb := range direct {
		eventually(t, "the cluster is whole", patience, func() bool {
			info, err := rdb.ClusterInfo(t.Context()).Result()
			nodes := fmt.Sprintf("cluster_known_nodes:%d\r", n)
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, nodes)
		})
	}
	s := New(client(t, "redis://"+proxies[0].addr()+"?cluster=true", patience), patience)
	return s, proxies
}

func startClusterNode(t *testing.T) (addr, busPort string) {
	t.Helper()
	port, bus := reservePort(t), reservePort(t)
	cmd := exec.CommandContext(t.Context(), "redis-server", "--port", port.String(), "--cluster-port", bus.String(), "--bind", "127.0.0.1",
		"--cluster-enabled", "yes", "--dir", t.TempDir(), "--save", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return port.Addr(), bus.String()
}

// reservePort returns a port that nobody else gets before the test ends.
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
	var asks []enforce.Ask
	for i := range 200 {
		ask := fourTiers(i, limit)
		ask.Tiers = ask.Tiers[:1]
		ask.Tiers[0].Key = enforce.Key{Tenant: rules.TenantID(i % 40), Rule: 1, Subject: "{hijack}"}
		asks = append(asks, ask)
	}
	for i, ask := range mustTake(t, s, asks) {
		if want := i/40 < 3; ask.Allowed != want {
			t.Errorf("ask %d of tenant %d: allowed %t, want %t", i/40, i%40, ask.Allowed, want)
		}
	}
	// One check with four tiers is one script on one node.
	if !mustTake(t, s, []enforce.Ask{fourTiers(1, limit)})[0].Allowed {
		t.Error("a check of four tiers was denied")
	}
}

// TestANodeOfAClusterThatLooksLikeOneServer has a URL that does not say cluster, which works as long as the node has
// all slots.
func TestANodeOfAClusterThatLooksLikeOneServer(t *testing.T) {
	t.Parallel()
	_, proxies := clusterNodes(t, 1)
	s := New(client(t, "redis://"+proxies[0].addr(), patience), patience)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 3}
	const tenants, callers = 20, 8
	var allowed [tenants]atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var asks []enforce.Ask
			for i := range 4 * tenants {
				tier := user("42", limit)
				tier.Key.Tenant = rules.TenantID(i % tenants)
				asks = append(asks, enforce.Ask{Cost: enforce.Token, Tiers: []enforce.Tier{tier}})
			}
			if err := s.Take(context.Background(), asks); err != nil {
				t.Error(err)
			}
			for i := range asks {
				if asks[i].Allowed {
					allowed[i%tenants].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for tenant := range allowed {
		if got := allowed[tenant].Load(); got != 3 {
			t.Errorf("tenant %d: %d checks passed a burst of 3", tenant, got)
		}
	}
	if s.State() != Up {
		t.Errorf("the store thinks that Redis is %s", s.State())
	}
}

func TestALostReplyOfAClusterChargesAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, tenants := range map[string]int{"one script": 1, "a pipeline": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxies := clusterNodes(t, 1)
			loseReply(t, s, s, proxies[0], tenants)
		})
	}
}
