package decide

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb"
)

func TestAProcessWithoutRulesRefusesConnectionsForChecks(t *testing.T) {
	t.Parallel()
	reserve := func() string {
		port, err := devdb.ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.Release)
		return port.Addr()
	}
	cfg := config.Config{
		Command: config.API, DatabaseURL: "postgres://127.0.0.1:1/none", CheckAddr: reserve(), GRPCAddr: reserve(),
		MetricsAddr: "127.0.0.1:0", LocalBuckets: 16, ShutdownTimeout: time.Minute,
	}
	a, err := NewAPI(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- a.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
		got, err := client.Get("http://" + a.MetricsAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", path, got.StatusCode, want)
		}
	}
	for name, addr := range map[string]string{"checks": cfg.CheckAddr, "gRPC": cfg.GRPCAddr} {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			t.Errorf("a connection for %s is accepted", name)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
