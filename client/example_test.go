package sluice_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sluicegate/sluice/client"
)

// demo is a Sluice server that allows three reports of a user, so that the examples run anywhere.
func demo() *httptest.Server {
	asked := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch asked++; {
		case strings.HasSuffix(r.URL.Path, "/settle"):
			_, _ = io.WriteString(w, `{"settled":true,"charged":812.5}`)
		case strings.Contains(string(body), "reserve"):
			_, _ = io.WriteString(w, `{"allowed":true,"reservation":"r1"}`)
		case asked <= 3:
			_, _ = fmt.Fprintf(w, `{"allowed":true,"limit":3,"remaining":%d,"reset_after_ms":%d}`, 3-asked,
				10_000*asked)
		default:
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w,
				`{"allowed":false,"reason":"limit_exceeded","retry_after_ms":9959,"limit":3,`+
					`"remaining":0,"reset_after_ms":29959}`)
		}
	}))
}

const demoKey = "slk_demo_0123456789abcdef0123456789abcdef"

func ExampleClient_Check() {
	server := demo() // in your service: the URL of Sluice, such as http://127.0.0.1:8080
	defer server.Close()
	limits, err := sluice.New(sluice.Config{URL: server.URL, Key: demoKey, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	for range 4 {
		decision, err := limits.Check(context.Background(), sluice.Check{UserID: "42", Endpoint: "/api/reports"})
		switch {
		case err != nil: // the check itself is invalid
			fmt.Println(err)
		case decision.Allowed:
			fmt.Println("allowed,", decision.Remaining, "left")
		default:
			fmt.Println("denied:", decision.Reason, "wait", decision.RetryAfter)
		}
	}
	// Output:
	// allowed, 2 left
	// allowed, 1 left
	// allowed, 0 left
	// denied: limit_exceeded wait 9.959s
}

func ExampleClient_Middleware() {
	server := demo()
	defer server.Close()
	limits, err := sluice.New(sluice.Config{URL: server.URL, Key: demoKey, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	limited := limits.Middleware(func(r *http.Request) (sluice.Check, bool) {
		return sluice.Check{UserID: r.Header.Get("X-User"), Endpoint: "/api/reports", Method: r.Method}, true
	})
	reports := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "a report")
	}))
	for range 4 {
		answer := httptest.NewRecorder()
		reports.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/reports", nil))
		fmt.Println(answer.Code, answer.Header().Get("X-RateLimit-Remaining"), "left")
	}
	// Output:
	// 200 2 left
	// 200 1 left
	// 200 0 left
	// 429 0 left
}

func ExampleClient_Reserve() {
	server := demo()
	defer server.Close()
	limits, err := sluice.New(sluice.Config{URL: server.URL, Key: demoKey, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	ctx := context.Background()
	decision, err := limits.Reserve(ctx, sluice.Check{UserID: "42", Endpoint: "/v1/chat", Cost: 500}, time.Minute)
	if err != nil || !decision.Allowed {
		fmt.Println("denied", err)
		return
	}
	settled, err := limits.Settle(ctx, decision.Reservation, 812.5)
	fmt.Println(settled.Settled, settled.Charged, err)
	// Output: true 812.5 <nil>
}

func ExampleLimiter() {
	pace := sluice.NewLimiter(5, 20) // 20 requests at once, then 5 per second
	passed := 0
	for range 100 {
		if pace.Allow() {
			passed++
		}
	}
	fmt.Println(passed)
	fmt.Println(pace.Reserve().Delay() > 100*time.Millisecond)

	// Output:
	// 20
	// true
}
