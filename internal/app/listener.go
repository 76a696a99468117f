package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sluicegate/sluice/internal/certs"
	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// Listener is an address and the server of its requests.
type Listener struct {
	name, addr string
	secure     *tls.Config
	server     Server
	bound      net.Listener
}

// Server is an *http.Server, or one of checks or gRPC.
type Server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// NewListener returns a Listener that refuses connections until Open. TLS connections are HTTP/1.1 unless a protocol is
// named, because limits are written for one request at a time.
func (p *Process) NewListener(name, addr string, files certs.Files, server Server, protocols ...string) (*Listener,
	error,
) {
	source, err := certs.Open(files, p.Log)
	if err != nil {
		return nil, err
	}
	l := &Listener{name: name, addr: addr, server: server}
	if files.Cert.Path != "" {
		if len(protocols) == 0 {
			protocols = []string{"http/1.1"}
		}
		l.secure = source.Server(protocols...)
	}
	if !source.Expiry().IsZero() {
		p.Metrics.Certificate(name, source.Expiry)
	}
	return l, nil
}

// Open binds the address, unless it is bound.
func (l *Listener) Open() error {
	if l.bound != nil {
		return nil
	}
	bound, err := net.Listen("tcp", l.addr)
	if err != nil {
		return fmt.Errorf("listen for %s requests: %w", l.name, err)
	}
	if l.secure != nil {
		bound = tls.NewListener(bound, l.secure)
	}
	l.bound = bound
	return nil
}

// Name returns the name of the served surface, for logs.
func (l *Listener) Name() string { return l.name }

// Addr is the address that Open has bound.
func (l *Listener) Addr() net.Addr { return l.bound.Addr() }

// Serve serves until ctx ends, then accepts no more connections and waits for the requests in flight.
func (l *Listener) Serve(ctx context.Context, drain time.Duration) error {
	failed := make(chan error, 1)
	panics.Go(nil, "serving "+l.name, func() {
		failed <- panics.Do(nil, "serving "+l.name, func() error { return l.server.Serve(l.bound) })
	})
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := l.server.Shutdown(limited); err != nil {
		return fmt.Errorf("requests at %s did not end within %s: %w", l.Addr(), drain,
			errors.Join(err, l.server.Close()))
	}
	return nil
}

// Close closes a Listener that never served.
func (l *Listener) Close() error {
	if l.bound == nil {
		return nil
	}
	if err := l.bound.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the listener at %s: %w", l.Addr(), err)
	}
	return nil
}
