package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sluicegate/sluice/internal/certs"
)

// Listener is a bound address and the server of its requests.
type Listener struct {
	net.Listener
	server Server
}

// Server is an *http.Server, or one of checks or gRPC.
type Server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// Listen binds an address. With a certificate its connections are TLS, of HTTP/1.1 only unless a protocol is named: the
// limits of connections and requests are written for one request at a time. Metrics show when the certificate expires, by
// name.
func (p *Process) Listen(name, addr string, files certs.Files, server Server, protocols ...string) (*Listener, error) {
	source, err := certs.Open(files, p.Log)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s requests: %w", name, err)
	}
	if files.Cert.Path != "" {
		if len(protocols) == 0 {
			protocols = []string{"http/1.1"}
		}
		l = tls.NewListener(l, source.Server(protocols...))
	}
	if !source.Expiry().IsZero() {
		p.Metrics.Certificate(name, source.Expiry)
	}
	return &Listener{l, server}, nil
}

// Serve serves until ctx ends, then accepts no more connections and waits for the requests in flight.
func (l *Listener) Serve(ctx context.Context, drain time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- l.server.Serve(l.Listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// ctx has ended; the drain has its own timeout.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := l.server.Shutdown(limited); err != nil {
		return fmt.Errorf("requests at %s did not end within %s: %w", l.Addr(), drain, errors.Join(err, l.server.Close()))
	}
	return nil
}

// Close closes a listener that never served.
func (l *Listener) Close() error {
	if err := l.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the listener at %s: %w", l.Addr(), err)
	}
	return nil
}
