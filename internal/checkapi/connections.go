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
	// DefaultMaxConnections is the default of Config.MaxConnections. An idle connection costs about 24 KiB.
	DefaultMaxConnections = 16 << 10
	// evictedShare is the part of the limit that is evicted at once: looking for candidates costs milliseconds.
	evictedShare = 64
	// fruitless is how long the server waits after it found no connection to close before it looks again.
	evictPause = 100 * time.Millisecond
	// slowReader is how long an answer may wait to be read before its connection can be closed for another.
	slowReader = time.Second
	// maxReserve connections over the limit are answered once each: health probes as ever, anything else with 503.
	// reserveShare of them may come from one network.
	maxReserve   = 64
	reserveShare = 16
	// warnEvery is the least time between two warnings that the limit is reached.
	warnEvery = time.Minute
)

// connections is the set of a server's open connections. The connections over its limit that only answer a probe are in
// it as well.
type connections struct {
	limit int

	mu           sync.Mutex
	all          map[*conn]struct{}
	reserve      int                  // how many of all are over the limit
	reserveOf    map[netip.Prefix]int // how many of the reserve each network has
	nextEviction time.Time            // after evict found nothing

	refused, evicted atomic.Int64
}

// place is where a new connection stands.
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

// remove takes a connection out of the set, if it is in it.
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

// makeRoom closes connections where the process has no file descriptor for another.
func (s *connections) makeRoom(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(now)
}

// end closes the connections that are in one of the phases.
func (s *connections) closeIn(phases ...phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if state := connState(c.state.Load()); slices.Contains(phases, state.phase()) {
			c.endFrom(state)
		}
	}
}

// count returns how many connections are in a phase.
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

// cut closes all connections, whatever they are doing.
func (s *connections) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		_ = c.Conn.Close()
	}
}

// open returns how many connections there are.
func (s *connections) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// evict closes connections that wait for their caller, and returns how many. The group with the most connections loses
// first, so that no caller can evict the others. A tenant's connections are a group. Those that have shown no key are
// another, within which the network with the most connections loses first. Within a tenant or network the longest idle
// connection goes first. mu must be held.
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

// candidate is a connection that can be closed for another.
type victim struct {
	*conn
	seen connState
	// weight is how many connections its group would hold if all candidates before it were closed.
	weight int
}

// rank returns the connections that can be closed, in the order in which they should be.
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

// groups are the connections of each tenant, or of each network.
type groups[K comparable] map[K]*group

type group struct {
	size    int // with those that cannot be closed
	victims []victim
}

func (g groups[K]) add(key K, c *conn, seen connState, evictable bool) {
	of := g[key]
	if of == nil {
		of = &group{}
		g[key] = of
	}
	of.size++
	if evictable {
		of.victims = append(of.victims, victim{conn: c, seen: seen})
	}
}

// ranked returns all candidates, those of the largest group first.
func (g groups[K]) ranked() (all []victim) {
	for _, of := range g {
		slices.SortFunc(of.victims, compareIdle)
		for i := range of.victims {
			of.victims[i].weight = of.size - i
		}
		all = append(all, of.victims...)
	}
	slices.SortFunc(all, heaviestFirst)
	return all
}

// networkOf returns whose connections share a fate: an IPv4 address, or a /64 of IPv6, which one host has for itself.
func networkOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	network, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
