package checkapi

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// defaultMaxConnections is the default of Config.MaxConnections. An idle connection costs about 24 KiB.
	defaultMaxConnections = 16 << 10
	// evictedShare is the part of the limit that is evicted at once, because ranking victims takes milliseconds.
	evictedShare = 64
	// evictPause is how long the server waits after it found no victim.
	evictPause = 100 * time.Millisecond
	// slowReader is how long a caller may take to read an answer before its connection can be evicted.
	slowReader = time.Second
	// maxReserve caps the connections over the limit. Each gets one answer: a health probe its own, other requests 503.
	// reserveShare of them may come from one network.
	maxReserve   = 64
	reserveShare = 16
	warnEvery    = time.Minute
)

// connections is the set of a server's open connections, with the reserve over its limit.
type connections struct {
	limit int

	mu           sync.Mutex
	all          map[*conn]struct{}
	reserve      int                  // how many are over the limit
	reserveOf    map[netip.Prefix]int // by network
	nextEviction time.Time            // after evict found nothing

	refused, evicted atomic.Int64
}

// standing is how a new connection is treated.
type standing int

const (
	admitted standing = iota // within the limit
	reserved                 // over the limit, in the reserve
	rejected                 // over the limit, and the reserve is full
)

// add adds a connection to the set. At the limit it evicts others first.
func (s *connections) add(c *conn, now time.Time) standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all)-s.reserve < s.limit || s.evict(now) > 0 {
		s.all[c] = struct{}{}
		return admitted
	}
	s.refused.Add(1)
	if s.reserve >= maxReserve || s.reserveOf[c.network] >= reserveShare {
		return rejected
	}
	c.reserved = true
	s.reserve++
	s.reserveOf[c.network]++
	s.all[c] = struct{}{}
	return reserved
}

func (s *connections) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
}

func (s *connections) drop(c *conn) {
	if _, found := s.all[c]; !found {
		return
	}
	delete(s.all, c)
	if !c.reserved {
		return
	}
	s.reserve--
	if s.reserveOf[c.network]--; s.reserveOf[c.network] == 0 {
		delete(s.reserveOf, c.network)
	}
}

// makeRoom evicts connections when the process has no file descriptor left.
func (s *connections) makeRoom(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(now)
}

func (s *connections) closeIn(phases ...phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if state := connState(c.state.Load()); slices.Contains(phases, state.phase()) {
			c.endFrom(state)
		}
	}
}

func (s *connections) count(p phase) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if connState(c.state.Load()).phase() == p {
			n++
		}
	}
	return n
}

func (s *connections) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		_ = c.raw.Close()
	}
}

func (s *connections) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// evict closes connections that wait for their caller, and returns how many. The largest group loses first, so that no
// caller can evict the others. A group is a tenant's connections, or the anonymous ones, of which the network with the most
// loses first. Within a tenant or network the longest idle connection goes first. mu must be held.
func (s *connections) evict(now time.Time) (n int) {
	if now.Before(s.nextEviction) {
		return 0
	}
	want := max(1, s.limit/evictedShare)
	for _, v := range s.rank(now) {
		if !v.endFrom(v.seen) {
			continue // a request came in the meantime
		}
		s.drop(v.conn)
		if n++; n == want {
			break
		}
	}
	if n == 0 {
		s.nextEviction = now.Add(evictPause)
	}
	s.evicted.Add(int64(n))
	return n
}

type victim struct {
	*conn
	seen connState
	// weight is how many connections its group has left once all victims before it are closed.
	weight int
}

func (s *connections) rank(now time.Time) []victim {
	tenants, networks := groups[rules.TenantID]{}, groups[netip.Prefix]{}
	anonymous := 0
	for c := range s.all {
		if c.reserved {
			continue
		}
		seen := connState(c.state.Load())
		evictable := seen.evictable(now.Sub(c.server.began))
		if tenant := rules.TenantID(c.tenant.Load()); tenant != 0 {
			tenants.add(tenant, c, seen, evictable)
		} else {
			anonymous++
			networks.add(c.network, c, seen, evictable)
		}
	}
	anonymousVictims := networks.ranked()
	for i := range anonymousVictims {
		anonymousVictims[i].weight = anonymous - i
	}
	all := append(tenants.ranked(), anonymousVictims...)
	slices.SortFunc(all, heaviestFirst)
	return all
}

func heaviestFirst(a, b victim) int {
	return cmp.Or(cmp.Compare(b.weight, a.weight), compareIdle(a, b))
}

func compareIdle(a, b victim) int { return cmp.Compare(a.seen.since(), b.seen.since()) }

type groups[K comparable] map[K]*group

type group struct {
	size    int // with connections that cannot be evicted
	victims []victim
}

func (g groups[K]) add(key K, c *conn, seen connState, evictable bool) {
	owner := g[key]
	if owner == nil {
		owner = &group{}
		g[key] = owner
	}
	owner.size++
	if evictable {
		owner.victims = append(owner.victims, victim{conn: c, seen: seen})
	}
}

func (g groups[K]) ranked() (all []victim) {
	for _, owner := range g {
		slices.SortFunc(owner.victims, compareIdle)
		for i := range owner.victims {
			owner.victims[i].weight = owner.size - i
		}
		all = append(all, owner.victims...)
	}
	slices.SortFunc(all, heaviestFirst)
	return all
}

// networkOf returns the network of a connection's other end, or the zero Prefix.
func networkOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return rules.CustomerNetwork(tcp.AddrPort().Addr())
}
