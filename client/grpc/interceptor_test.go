package sluicegrpc_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	sluice "github.com/sluicegate/sluice/client"
	sluicegrpc "github.com/sluicegate/sluice/client/grpc"
)

const testTimeout = 30 * time.Second

func serve(t *testing.T, status int, answer string, mode sluice.FailureMode) (grpc_health_v1.HealthClient,
	*atomic.Int64, func(),
) {
	t.Helper()
	var settled atomic.Int64
	checks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/settle" {
			settled.Add(1)
			_, _ = io.WriteString(w, `{"settled":true}`)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(checks.Close)
	limits, err := sluice.New(sluice.Config{
		URL: checks.URL, Key: "slk_test_secret", Timeout: testTimeout, FailureMode: mode,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	identify := func(_ context.Context, fullMethod string) (sluice.Check, bool) {
		return sluice.Check{UserID: "42", Endpoint: fullMethod}, true
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(sluicegrpc.Unary(limits, identify)),
		grpc.StreamInterceptor(sluicegrpc.Stream(limits, identify)),
		grpc.WaitForHandlers(true),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // ends with Stop
	connection, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = connection.Close() // a second Close returns an error
		server.Stop()
		limits.Close()
	}
	t.Cleanup(stop)
	return grpc_health_v1.NewHealthClient(connection), &settled, stop
}

func TestInterceptors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		mode   sluice.FailureMode
		want   codes.Code
		wait   time.Duration
		places int64
	}{
		"what is allowed passes": {status: 200, answer: `{"allowed":true}`},
		"a place is released after the call": {
			status: 200, answer: `{"allowed":true,"reservation":"r1"}`,
			places: 2,
		},
		"what is denied is told how long to wait": {
			status: 429,
			answer: `{"allowed":false,"reason":"limit_exceeded","retry_after_ms":9959}`, want: codes.ResourceExhausted,
			wait: 9959 * time.Millisecond,
		},
		"what is blocked is told no wait": {
			status: 429,
			answer: `{"allowed":false,"reason":"blocked","retry_after_ms":null}`, want: codes.ResourceExhausted,
		},
		"it passes when nobody decides": {status: 500, answer: `oops`},
		"it is refused when that fails closed": {
			status: 500, answer: `oops`, mode: sluice.Closed,
			want: codes.Unavailable, wait: time.Second,
		},
		"a check that is not valid is an error of it": {
			status: 400,
			answer: `{"type":"urn:sluice:problem:invalid-request"}`, want: codes.InvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, settled, stop := serve(t, c.status, c.answer, c.mode)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
			wantStatus(t, "a call", err, c.want, c.wait)
			watch, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			wantStatus(t, "a stream", err, c.want, c.wait)
			cancel()
			stop()
			if got := settled.Load(); got != c.places {
				t.Errorf("%d places were released, want %d", got, c.places)
			}
		})
	}
}

func wantStatus(t *testing.T, what string, err error, want codes.Code, wait time.Duration) {
	t.Helper()
	got := status.Convert(err)
	if got.Code() != want {
		t.Errorf("%s ends with %v, want %v: %s", what, got.Code(), want, got.Message())
	}
	var told time.Duration
	for _, detail := range got.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			told = info.GetRetryDelay().AsDuration()
		}
	}
	if told != wait {
		t.Errorf("%s is told to wait %v, want %v", what, told, wait)
	}
}
