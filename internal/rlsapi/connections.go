package rlsapi

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/sluicegate/sluice/internal/rules"
)

// connections is the set of a server's open connections. At the limit a new one closes others, those of the largest group
// first, so that nobody can keep others out. A group is the connections of a tenant, or the anonymous ones, of which the
// network with the most loses first. Within a group idle connections go first, and then the one that asked longest ago.
type connections struct {
	limit int

	mu      sync.Mutex
	all     map[*conn]struct{}
	evicted atomic.Int64
}

// evictedShare is the part of the limit, one in so many, that is closed at once: looking for them costs a walk over all.
const evictedShare = 64

// conn is an open connection.
type conn struct {
	net.Conn
	set      *connections
	network  netip.Prefix
	tenant   atomic.Int64 // of its last request; 0 while it has not shown a key
	inFlight atomic.Int32
	asked    atomic.Int64 // when it last asked, in nanoseconds of the Unix epoch
	streams  atomic.Int32 // of the health service and of reflection
}

func (c *conn) begin(tenant rules.TenantID, now time.Time) {
	c.tenant.Store(int64(tenant))
	c.asked.Store(now.UnixNano())
	c.inFlight.Add(1)
}

func (c *conn) end() { c.inFlight.Add(-1) }

// listener adds accepted connections to the set.
type listener struct {
	net.Listener
	set *connections
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // gRPC looks at its type
	}
	c := &conn{Conn: raw, set: l.set, network: networkOf(raw.RemoteAddr())}
	c.asked.Store(time.Now().UnixNano())
	l.set.add(c)
	return c, nil
}

func networkOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return rules.CustomerNetwork(tcp.AddrPort().Addr())
}

// Close closes the connection and removes it from the set.
func (c *conn) Close() error {
	c.set.mu.Lock()
	delete(c.set.all, c)
	c.set.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // gRPC looks at its type
}

func (s *connections) add(c *conn) {
	for _, victim := range s.makeRoom(c) {
		go func() { _ = victim.Conn.Close() }() // TLS waits up to 5 s to say good-bye
	}
}

// makeRoom adds a connection and returns those that are removed for it.
func (s *connections) makeRoom(c *conn) (victims []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= s.limit {
		victims = s.rank()
		victims = victims[:min(len(victims), max(1, s.limit/evictedShare))]
		for _, victim := range victims {
			delete(s.all, victim)
		}
		s.evicted.Add(int64(len(victims)))
	}
	s.all[c] = struct{}{}
	return victims
}

// rank returns all connections, those that are closed first at the front.
func (s *connections) rank() []*conn {
	tenants, networks := map[int64][]*conn{}, map[netip.Prefix][]*conn{}
	for c := range s.all {
		if tenant := c.tenant.Load(); tenant != 0 {
			tenants[tenant] = append(tenants[tenant], c)
		} else {
			networks[c.network] = append(networks[c.network], c)
		}
	}
	var all []ranked
	for _, group := range networks {
		all = append(all, rankGroup(group)...)
	}
	slices.SortFunc(all, compareRanked)
	for i := range all { // the anonymous ones are one group
		all[i].left = len(all) - i
	}
	for _, group := range tenants {
		all = append(all, rankGroup(group)...)
	}
	slices.SortStableFunc(all, compareRanked)
	order := make([]*conn, len(all))
	for i := range all {
		order[i] = all[i].conn
	}
	return order
}

// ranked is a connection with how many its group has left when those before it are closed.
type ranked struct {
	*conn
	left  int
	busy  bool
	asked int64
}

func rankGroup(group []*conn) []ranked {
	all := make([]ranked, len(group))
	for i, c := range group {
		all[i] = ranked{conn: c, busy: c.inFlight.Load() > 0, asked: c.asked.Load()}
	}
	slices.SortFunc(all, compareIdle)
	for i := range all {
		all[i].left = len(all) - i
	}
	return all
}

func compareRanked(a, b ranked) int { return cmp.Or(cmp.Compare(b.left, a.left), compareIdle(a, b)) }

func compareIdle(a, b ranked) int {
	if a.busy != b.busy {
		if a.busy {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.asked, b.asked)
}

func (s *connections) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// handshake makes the connection of a request known to its handler, by peer.FromContext. TLS is the listener's.
type handshake struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*conn)
	if !ok {
		return nil, nil, errors.New("the connection is not the listener's")
	}
	return raw, authInfo{c}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

// Info implements credentials.TransportCredentials.
func (handshake) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (h handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials.
func (handshake) OverrideServerName(string) error { return nil }

type authInfo struct{ *conn }

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "listener" }

// connOf returns the connection of a request.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.conn
		}
	}
	return nil
}
