package migrate_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }

func TestUpGivesUpOnADatabaseThatStalls(t *testing.T) {
	t.Parallel()
	database, err := url.Parse(devdbtest.EmptyPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	query := database.Query()
	network, address := "tcp", database.Host
	if host := query.Get("host"); strings.HasPrefix(host, "/") {
		port := database.Port()
		if port == "" {
			port = query.Get("port")
		}
		network, address = "unix", host+"/.s.PGSQL."+port
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(t.Context(), network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
			var stalled atomic.Bool
			go func() { _, _ = io.Copy(client, server) }()
			go func() {
				buffer := make([]byte, 1<<16)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					if strings.Contains(string(buffer[:n]), "advisory") {
						stalled.Store(true)
					}
					if !stalled.Load() {
						_, _ = server.Write(buffer[:n])
					}
				}
			}()
		}
	}()
	query.Del("host")
	query.Del("port")
	database.Host, database.RawQuery = listener.Addr().String(), query.Encode()
	began := time.Now()
	err = migrate.UpWithin(t.Context(), database.String(), 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "take the lock") {
		t.Errorf("the error is %v, want one about the lock", err)
	}
	if took := time.Since(began); took > 50*time.Second { // of the minute that there is for all of it
		t.Errorf("it took %s to give up", took)
	}
}
