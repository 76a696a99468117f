package devdb_test

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb"
)

func TestAReservedPortIsOnlyForWhoeverNamesIt(t *testing.T) {
	t.Parallel()
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	for range 3 { // like a server that is killed and restarted
		conn, err := net.Dial("tcp", port.Addr())
		if err == nil && conn.LocalAddr().String() == conn.RemoteAddr().String() {
			_ = conn.Close() // the system chose the same port for the near end: TCP lets a connection meet itself
			conn, err = net.Dial("tcp", port.Addr())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("while nobody listens a connection is %v, error %v; want it refused", conn, err)
		}
		l, err := net.Listen("tcp", port.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conn, err = net.Dial("tcp", port.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "linux" {
		return // not reserved, as documented
	}
	// The system chooses a port by this rule, also for outgoing connections: no socket is bound to it.
	alone := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var refused error
		err := c.Control(func(fd uintptr) {
			refused = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		})
		return errors.Join(err, refused)
	}}
	if l, err := alone.Listen(t.Context(), "tcp", port.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("somebody who wants it alone has %v, error %v; want that it is in use", l, err)
	}
}
