package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/sluicegate/sluice/internal/certs"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/metrics"
)

type listener struct {
	net.Listener
	server Server
	certs  *certs.Source
}

// Server is an *http.Server, a CheckServer or one of gRPC.
type Server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// listen binds an address. With a certificate its connections are TLS, of HTTP/1.1 only unless a protocol is named: the
// limits of connections and requests are written for one request at a time.
func listen(what, addr string, files certs.Files, server Server, log *slog.Logger, protocols ...string) (*listener, error) {
	source, err := certs.Open(files, log)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s requests: %w", what, err)
	}
	if files.Cert.Path != "" {
		if len(protocols) == 0 {
			protocols = []string{"http/1.1"}
		}
		l = tls.NewListener(l, source.Server(protocols...))
	}
	return &listener{l, server, source}, nil
}

// showCertificate shows when the certificate of a listener expires, if it has one.
func showCertificate(m *metrics.Metrics, name string, l *listener) {
	if !l.certs.Expiry().IsZero() {
		m.Certificate(name, l.certs.Expiry)
	}
}

// listenForScrapes serves the metrics, health and, if the option says so, profiles.
func listenForScrapes(cfg config.Config, m *metrics.Metrics, readiness func() httpapi.Readiness, log *slog.Logger) (*listener, error) {
	scrapes := http.NewServeMux()
	scrapes.Handle("GET /metrics", m.Handler())
	scrapes.Handle("/", httpapi.HealthHandler(config.ReadBuild().Version, readiness))
	if cfg.Pprof {
		scrapes.HandleFunc("GET /debug/pprof/", pprof.Index)
		scrapes.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		scrapes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		scrapes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		scrapes.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	l, err := listen("metrics", cfg.MetricsAddr, cfg.MetricsCerts(), httpapi.NewServer(scrapes, log), log)
	if err == nil {
		showCertificate(m, "metrics", l)
	}
	return l, err
}

// serve serves until ctx ends, then accepts no more connections and waits for the requests in flight.
func (l *listener) serve(ctx context.Context, drain time.Duration) error {
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

// close closes a listener that never served.
func (l *listener) close() error {
	if err := l.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the listener at %s: %w", l.Addr(), err)
	}
	return nil
}
