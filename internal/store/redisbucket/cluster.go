package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// cluster finds a tenant's node by the driver's table of slots, reloaded on demand and once a minute.
//
// Checks go to their master directly: the driver's cluster client follows redirects, and a batch to one node would wait
// for another. Redirected checks go to the router, within the rest of their budget.
type cluster struct {
	store  *Store
	client *redis.ClusterClient
	// router follows redirects, and serves all checks while the masters are unknown.
	router *node

	mu    sync.Mutex
	nodes atomic.Pointer[map[*redis.Client]*node] // copied on write
}

func newCluster(s *Store, client *redis.ClusterClient) *cluster {
	c := &cluster{store: s, client: client, router: s.newNode("", client)}
	c.nodes.Store(&map[*redis.Client]*node{})
	return c
}

var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *cluster) nodeOf(tenant rules.TenantID) *node {
	var space [64]byte
	tag := appendTag(space[:0], c.store.prefix, tenant)
	master, err := c.client.MasterForKey(canceled, string(tag))
	if err != nil {
		return c.router
	}
	if n := (*c.nodes.Load())[master]; n != nil {
		return n
	}
	return c.add(master)
}

// add replaces a node of the same address, whose client the driver has closed.
func (c *cluster) add(master *redis.Client) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := maps.Clone(*c.nodes.Load())
	if n := nodes[master]; n != nil {
		return n
	}
	addr := master.Options().Addr
	maps.DeleteFunc(nodes, func(_ *redis.Client, n *node) bool { return n.addr == addr })
	n := c.store.newNode(addr, master)
	nodes[master] = n
	c.nodes.Store(&nodes)
	return n
}

func (c *cluster) keepOnly(masters []*redis.Client) {
	for _, master := range masters {
		if (*c.nodes.Load())[master] == nil {
			c.add(master)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if nodes := *c.nodes.Load(); len(nodes) > len(masters) {
		nodes = maps.Clone(nodes)
		maps.DeleteFunc(nodes, func(master *redis.Client, _ *node) bool { return !slices.Contains(masters, master) })
		c.nodes.Store(&nodes)
	}
}

func (c *cluster) states() []Node {
	var nodes []Node
	for _, n := range *c.nodes.Load() {
		nodes = append(nodes, n.report())
	}
	if len(nodes) == 0 {
		return []Node{c.router.report()}
	}
	byAddr(nodes)
	return nodes
}

func (c *cluster) waiting() (tiers int) {
	for _, n := range *c.nodes.Load() {
		tiers += n.combiner.Depth()
	}
	return tiers + c.router.combiner.Depth()
}

func byAddr(nodes []Node) {
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Addr, b.Addr) })
}

func (c *cluster) dispatch(checks []enforce.BucketCheck, queuedAt time.Time) error {
	if tenant, ok := onlyTenant(checks); ok {
		return c.submit(c.nodeOf(tenant), checks, queuedAt)
	}
	groups := map[*node][]int{}
	for i := range checks {
		if len(checks[i].Tiers) > 0 {
			n := c.nodeOf(checks[i].Tiers[0].Key.Tenant)
			groups[n] = append(groups[n], i)
		}
	}
	var wg panics.Group
	var mu sync.Mutex
	var errs []error
	for n, group := range groups {
		wg.Go(nil, "checks of a node", func() {
			err := c.submitSome(n, checks, group, queuedAt)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	if err := wg.Wait(); err != nil {
		errs = append(errs, err)
	}
	return joinErrors(errs)
}

func joinErrors(errs []error) error {
	all := errors.Join(errs...)
	for _, err := range errs {
		if err != nil && !errors.Is(err, enforce.ErrNothingTaken) && errors.Is(all, enforce.ErrNothingTaken) {
			return unknownOutcome{all}
		}
	}
	return all
}

// Without Unwrap, errors.Is finds no ErrNothingTaken of only some parts.
type unknownOutcome struct{ error }

func onlyTenant(checks []enforce.BucketCheck) (tenant rules.TenantID, ok bool) {
	found := false
	for i := range checks {
		if len(checks[i].Tiers) == 0 {
			continue
		}
		if other := checks[i].Tiers[0].Key.Tenant; !found {
			tenant, found = other, true
		} else if other != tenant {
			return tenant, false
		}
	}
	return tenant, true
}

func (c *cluster) submitSome(n *node, checks []enforce.BucketCheck, indexes []int, queuedAt time.Time) error {
	some := make([]enforce.BucketCheck, len(indexes))
	for i, at := range indexes {
		some[i] = checks[at]
	}
	err := c.submit(n, some, queuedAt)
	for i, at := range indexes {
		checks[at] = some[i]
	}
	return err
}

func (c *cluster) submit(n *node, checks []enforce.BucketCheck, queuedAt time.Time) error {
	last, err := n.combiner.Submit(checks, queuedAt)
	if n != c.router && isRedirect(err) {
		_, err = c.router.combiner.Submit(checks, last)
	}
	return err
}
