package checkapi

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// An idle connection costs about 24 KiB.
	defaultMaxConnections = 16 << 10
	// evictedShare is the part of the limit that one eviction closes, because ranking takes milliseconds.
	evictedShare = 64
	evictPause   = 100 * time.Millisecond
	// slowCaller is how long a caller may read an answer before eviction, and a shutdown waits for the rest of a
	// request.
	slowCaller = time.Second
	// maxReserve caps the connections over the limit, which get one answer each; reserveShare is for one network.
	maxReserve   = 64
	reserveShare = 16
	warnEvery    = time.Minute
)

type connections struct {
	limit int

	mu           sync.Mutex
	all          map[*conn]struct{}
	reserve      int                  // number of connections over the limit
	reserveOf    map[netip.Prefix]int // by network
	nextEviction time.Time            // after evict found nothing

	refused, evicted atomic.Int64
}

type standing int

const (
	admitted standing = iota // within the limit
	reserved                 // over the limit, in the reserve
	rejected                 // over the limit, and the reserve is full
)

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

func (s *connections) makeRoom(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(now)
}

func (s *connections) closeLate(now time.Time, nearlyOver bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if state := connState(c.state.Load()); state.late(now.Sub(c.server.began), nearlyOver) {
			c.endFrom(state)
		}
	}
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

// evict requires mu.
func (s *connections) evict(now time.Time) (n int) {
	if now.Before(s.nextEviction) {
		return 0
	}
	want := max(1, s.limit/evictedShare)
	for _, v := range s.rank(now) {
		if !v.Conn.endFrom(v.Conn.seen) {
			continue // a request came in the meantime
		}
		s.drop(v.Conn.conn)
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
}

func (s *connections) rank(now time.Time) []door.Connection[victim] {
	var all []door.Connection[victim]
	for c := range s.all {
		if c.reserved {
			continue
		}
		seen := connState(c.state.Load())
		all = append(all, door.Connection[victim]{
			Conn: victim{c, seen}, Tenant: rules.TenantID(c.tenant.Load()), Network: c.network,
			IsKept: !seen.evictable(now.Sub(c.server.began)), Since: int64(seen.since()),
		})
	}
	return door.Rank(all)
}
