package envoy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// At the limit a new connection closes others, in the order of door.Rank.
type connections struct {
	limit int

	mu      sync.Mutex
	all     map[*conn]struct{}
	evicted atomic.Int64
}

// evictedShare is the part of the limit that one eviction closes, because ranking walks over all.
const evictedShare = 64

type conn struct {
	net.Conn
	set      *connections
	network  netip.Prefix
	tenant   atomic.Int64 // of its last request; 0 while it has not shown a key
	inFlight atomic.Int32
	asked    atomic.Int64 // when it last asked, in nanoseconds of the Unix epoch
	streams  atomic.Int32 // of the health service and of reflection
	greeted  atomic.Bool  // the client has begun HTTP/2
}

func (c *conn) begin(tenant rules.TenantID, now time.Time) {
	c.tenant.Store(int64(tenant))
	c.asked.Store(now.UnixNano())
	c.inFlight.Add(1)
}

func (c *conn) end() { c.inFlight.Add(-1) }

type listener struct {
	net.Listener
	set *connections
}

func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // gRPC looks at its type
		}
		c := &conn{Conn: raw, set: l.set}
		c.asked.Store(time.Now().UnixNano())
		add := func() error {
			c.network = door.NetworkOf(raw.RemoteAddr())
			l.set.add(c)
			return nil
		}
		if panics.Do(nil, "a new connection of gRPC", add) == nil {
			return c, nil
		}
		_ = raw.Close()
	}
}

// gRPC clears the deadline when the client has begun HTTP/2, or has failed to.
func (c *conn) SetDeadline(t time.Time) error {
	c.greeted.Store(t.IsZero())
	return c.Conn.SetDeadline(t) //nolint:wrapcheck // gRPC looks at its type
}

func (c *conn) Close() error {
	c.set.mu.Lock()
	delete(c.set.all, c)
	c.set.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // gRPC looks at its type
}

func (s *connections) add(c *conn) {
	for _, victim := range s.makeRoom(c) {
		// TLS waits up to 5 s for its closing message.
		panics.Go(nil, "closing a connection", func() { _ = victim.Conn.Close() })
	}
}

func (s *connections) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		if !c.greeted.Load() {
			panics.Go(nil, "closing a connection", func() { _ = c.Close() })
		}
	}
}

func (s *connections) makeRoom(c *conn) (victims []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= s.limit {
		all := s.rank()
		for _, victim := range all[:min(len(all), max(1, s.limit/evictedShare))] {
			delete(s.all, victim.Conn)
			victims = append(victims, victim.Conn)
		}
		s.evicted.Add(int64(len(victims)))
	}
	s.all[c] = struct{}{}
	return victims
}

func (s *connections) rank() []door.Connection[*conn] {
	var all []door.Connection[*conn]
	for c := range s.all {
		all = append(all, door.Connection[*conn]{
			Conn: c, Tenant: rules.TenantID(c.tenant.Load()), Network: c.network, IsBusy: c.inFlight.Load() > 0,
			Since: c.asked.Load(),
		})
	}
	return door.Rank(all)
}

func (s *connections) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// handshake makes the connection available to handlers, by peer.FromContext; TLS is the listener's.
type handshake struct{}

func (handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*conn)
	if !ok {
		return nil, nil, errors.New("the connection is not the listener's")
	}
	return raw, authInfo{c}, nil
}

func (handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

func (handshake) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

func (h handshake) Clone() credentials.TransportCredentials { return h }

func (handshake) OverrideServerName(string) error { return nil }

type authInfo struct{ *conn }

func (authInfo) AuthType() string { return "listener" }

func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.conn
		}
	}
	return nil
}
