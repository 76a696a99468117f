package control

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

func TestTheAdminProcessAnswersProbesWhereItsMetricsAre(t *testing.T) {
	t.Parallel()
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	cfg := config.Config{
		Command: config.AdminServe, DatabaseURL: "postgres://127.0.0.1:1/none", AdminAddr: port.Addr(),
		MetricsAddr:  "127.0.0.1:0",
		LocalBuckets: 16, ShutdownTimeout: time.Minute,
	}
	a, err := NewServer(t.Context(), cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- a.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	// no rules were loaded
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 503, "/": 404} {
		got, err := client.Get("http://" + a.MetricsAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", path, got.StatusCode, want)
		}
	}
	if conn, err := net.Dial("tcp", port.Addr()); err == nil {
		_ = conn.Close()
		t.Error("a connection for people is accepted")
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
