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
)

// cluster finds the node of a Redis Cluster that keeps a tenant's buckets. The driver knows which master serves which
// slot; it reloads that in the background, when told to and once a minute.
//
// Checks go to their master directly. The driver's cluster client would follow redirects, so that a batch to one node
// waits for another. A check that its master redirects goes to the router, within what is left of its budget.
type cluster struct {
	store  *Store
	client *redis.ClusterClient
	// router sends through the cluster client, which follows redirects: checks that a node redirected, and all checks
	// while the masters are unknown.
	router *node

	mu    sync.Mutex
	nodes atomic.Pointer[map[*redis.Client]*node] // copied on write
}

func newCluster(s *Store, client *redis.ClusterClient) *cluster {
	c := &cluster{store: s, client: client, router: s.newNode("", client)}
	c.nodes.Store(&map[*redis.Client]*node{})
	return c
}

// canceled keeps the driver from loading the cluster's state while a check waits.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// nodeOf returns the node that keeps a bucket and all others of its tenant and shard. It sends nothing.
func (c *cluster) nodeOf(key enforce.Key) *node {
	var space [64]byte
	tag := appendTag(space[:0], c.store.prefix, key)
	master, err := c.client.MasterForKey(canceled, string(tag))
	if err != nil {
		return c.router
	}
	if n := (*c.nodes.Load())[master]; n != nil {
		return n
	}
	return c.add(master)
}

// add returns the node of a master, and makes it if need be. It replaces the node of the same address, whose client the
// driver has closed.
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

// keepOnly forgets all nodes but those of the masters. It does not affect checks in flight.
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
	if key, ok := onlySlot(checks); ok {
		return c.submit(c.nodeOf(key), checks, queuedAt)
	}
	groups := map[*node][]int{}
	for i := range checks {
		if len(checks[i].Tiers) > 0 {
			n := c.nodeOf(checks[i].Tiers[0].Key)
			groups[n] = append(groups[n], i)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	var all outcome
	for n, group := range groups {
		wg.Go(func() {
			o := catch(func() error { return c.submitSome(n, checks, group, queuedAt) })
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, o.err)
			if o.panicked != nil {
				all.panicked = o.panicked
			}
		})
	}
	wg.Wait()
	all.err = joinErrors(errs)
	return all.result()
}

// joinErrors joins the errors of several parts. Together they say that nothing was taken only if each does.
func joinErrors(errs []error) error {
	all := errors.Join(errs...)
	for _, err := range errs {
		if err != nil && !errors.Is(err, enforce.ErrNothingTaken) && errors.Is(all, enforce.ErrNothingTaken) {
			return unknownOutcome{all}
		}
	}
	return all
}

// unknownOutcome hides that of some parts nothing was taken: it does not unwrap.
type unknownOutcome struct{ error }

// onlySlot returns a key of the slot that keeps the checks' buckets; ok is false if there are several.
func onlySlot(checks []enforce.BucketCheck) (key enforce.Key, ok bool) {
	found := false
	for i := range checks {
		if len(checks[i].Tiers) == 0 {
			continue
		}
		if other := checks[i].Tiers[0].Key; !found {
			key, found = other, true
		} else if other.Tenant != key.Tenant || other.Shard != key.Shard {
			return key, false
		}
	}
	return key, true
}

func (c *cluster) submitSome(n *node, checks []enforce.BucketCheck, places []int, queuedAt time.Time) error {
	some := make([]enforce.BucketCheck, len(places))
	for i, place := range places {
		some[i] = checks[place]
	}
	err := c.submit(n, some, queuedAt)
	for i, place := range places {
		checks[place].Allowed, checks[place].Answered, checks[place].Exhausted = some[i].Allowed, some[i].Answered, some[i].Exhausted
		checks[place].Reserve = some[i].Reserve
	}
	return err
}

// submit submits checks to a node. Those that it redirects were not executed, and go to the router.
func (c *cluster) submit(n *node, checks []enforce.BucketCheck, queuedAt time.Time) error {
	last, err := n.combiner.Submit(checks, queuedAt)
	if n != c.router && isRedirect(err) {
		_, err = c.router.combiner.Submit(checks, last)
	}
	return err
}
