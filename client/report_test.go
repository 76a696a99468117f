package sluice

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

func TestAReporterSendsWhatItCounted(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sums backendReport
	sums.Latency = map[string]int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var body struct{ Reports []backendReport }
		text, _ := io.ReadAll(request.Body)
		if err := json.Unmarshal(text, &body); err != nil || request.URL.Path != "/v1/report" ||
			len(body.Reports) != 1 {
			t.Errorf("%s %s: %v", request.URL.Path, text, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		one := body.Reports[0]
		sums.Backend = one.Backend
		sums.Requests += one.Requests
		sums.Errors += one.Errors
		for name, n := range one.Latency {
			sums.Latency[name] += n
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"accepted":1,"ignored":[]}`)
	}))
	t.Cleanup(server.Close)
	client, err := New(Config{URL: server.URL, Key: "slk_test_key", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	reporter := client.NewReporter("search")
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			for _, latency := range []time.Duration{
				0, time.Millisecond, 300 * time.Millisecond,
				300*time.Millisecond + 1, time.Hour,
			} {
				reporter.Observe(latency, latency > time.Minute)
			}
		})
	}
	callers.Wait()
	client.Close() // sends the rest
	mu.Lock()
	defer mu.Unlock()
	if sums.Backend != "search" || sums.Requests != 50 || sums.Errors != 10 {
		t.Errorf("the server got %+v", sums)
	}
	for name, want := range map[string]int64{"1": 20, "300": 10, "500": 10, "inf": 10} {
		if sums.Latency[name] != want {
			t.Errorf("bucket %s has %d requests, want %d", name, sums.Latency[name], want)
		}
	}
	client.NewReporter("late").Observe(time.Second, false) // after Close nothing is sent, and nothing leaks
}
