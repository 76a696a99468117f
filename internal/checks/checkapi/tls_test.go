package checkapi_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/sluicegate/sluice/internal/certs"
	"github.com/sluicegate/sluice/internal/certs/certstest"
	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func secure(t *testing.T) (net.Listener, *tls.Config) {
	t.Helper()
	ca := certstest.New(t)
	pair := ca.Valid(t, "server")
	source := must(certs.Open(certs.Files{Cert: certs.File{Path: pair.CertFile}, Key: certs.File{Path: pair.KeyFile}},
		slog.New(slog.DiscardHandler)))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	return tls.NewListener(l, source.Server("http/1.1")), ca.Client(t, certstest.Pair{})
}

func (c *caller) shake(config *tls.Config) *caller {
	c.Conn = tls.Client(c.Conn, config)
	c.answers = bufio.NewReader(c.Conn)
	return c
}

func TestUnfinishedHandshakesMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 1))
	h.config.MaxConnections = 16
	listener, config := secure(t)
	addr := listener.Addr().String()
	h.run(checkapi.NewServer(h.config), listener)
	var stalled []*caller
	for i := range 32 {
		c := call(t, addr)
		if i%2 == 0 {
			c.send("\x16\x03\x01\x02") // the beginning of a handshake
		}
		stalled = append(stalled, c)
	}
	c := call(t, addr).shake(config)
	for _, want := range []int{200, 429} {
		c.send(requestTo("/v1/check", `{"user_id":"x"}`))
		c.answer().want(t, want)
	}
	stalled[0].wantEnd()
}

func TestCallersWithoutTLSAreDisconnected(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	listener, config := secure(t)
	server := checkapi.NewServer(h.config)
	h.run(server, listener)
	plain := call(t, listener.Addr().String())
	plain.send(requestTo("/v1/check", `{}`))
	plain.wantEnd()
	config.RootCAs = nil // of an authority that it does not know
	var refused *tls.CertificateVerificationError
	if err := call(t, listener.Addr().String()).shake(config).Conn.(*tls.Conn).Handshake(); !errors.As(err, &refused) {
		t.Errorf("the handshake ended with %v", err)
	}
}

func TestAShutdownEndsConnectionsOfTLS(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	listener, config := secure(t)
	server := checkapi.NewServer(h.config)
	h.run(server, listener)
	idle, stalled := call(t, listener.Addr().String()).shake(config), call(t, listener.Addr().String())
	idle.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	idle.answer()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	stalled.wantEnd()
}

func TestAPanicInAHandshakeEndsItsConnectionAlone(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	_, config := secure(t)
	inner := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	listener := tls.NewListener(inner, &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("by the test") },
	})
	server := checkapi.NewServer(h.config)
	h.run(server, listener)
	for range 2 {
		if err := call(t, listener.Addr().String()).shake(config).Conn.(*tls.Conn).Handshake(); err == nil {
			t.Error("the handshake succeeded")
		}
	}
	if err := server.Shutdown(t.Context()); err != nil || server.Connections().Open != 0 {
		t.Errorf("%d connections are open, %v", server.Connections().Open, err)
	}
}
