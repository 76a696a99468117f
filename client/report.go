package sluice

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const reportEvery = time.Second

// latencyBounds are the buckets of POST /v1/report, in milliseconds; the last one, inf, is above them.
var latencyBounds = []int64{
	1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000,
	10_000, 15_000, 20_000, 30_000, 60_000,
}

// Reporter counts requests to a backend and reports them every second, for rules that adapt to the backend. The
// client's key needs the permission report. A failed report is dropped. Reporter is safe for concurrent use.
type Reporter struct {
	client  *Client
	backend string

	mu               sync.Mutex
	requests, errors int64
	latency          []int64 // by bucket
}

// NewReporter returns a Reporter for a backend that rules name in adapt. Client.Close sends the rest and ends it.
func (c *Client) NewReporter(backend string) *Reporter {
	r := &Reporter{client: c, backend: backend, latency: make([]int64, len(latencyBounds)+1)}
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	if c.life.Err() == nil {
		c.loop("reports", r.run)
	}
	return r
}

// Observe counts a request: its latency, and whether the backend failed it, such as by a timeout. Observe never waits.
func (r *Reporter) Observe(latency time.Duration, failed bool) {
	bucket, _ := slices.BinarySearchFunc(latencyBounds, latency, func(bound int64, latency time.Duration) int {
		return int(min(1, max(-1, time.Duration(bound)*time.Millisecond-latency)))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	r.latency[bucket]++
	if failed {
		r.errors++
	}
}

func (r *Reporter) run() {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	isFailing := false
	for isLast := false; !isLast; {
		select {
		case <-r.client.life.Done():
			isLast = true
		case <-ticker.C:
		}
		err := r.flush(context.WithoutCancel(r.client.life))
		if err != nil && !isFailing {
			r.client.config.Logger.Warn("Sluice does not take reports of a backend", "backend", r.backend, "error", err)
		}
		isFailing = err != nil
	}
}

type backendReport struct {
	Backend  string           `json:"backend"`
	Requests int64            `json:"requests"`
	Errors   int64            `json:"errors"`
	Latency  map[string]int64 `json:"latency_ms"`
}

func (r *Reporter) flush(ctx context.Context) error {
	r.mu.Lock()
	report := backendReport{r.backend, r.requests, r.errors, map[string]int64{}}
	for i, n := range r.latency {
		name := "inf"
		if i < len(latencyBounds) {
			name = strconv.FormatInt(latencyBounds[i], 10)
		}
		if n > 0 {
			report.Latency[name] = n
		}
	}
	r.requests, r.errors = 0, 0
	clear(r.latency)
	r.mu.Unlock()
	if report.Requests == 0 {
		return nil
	}
	body, err := json.Marshal(map[string][]backendReport{"reports": {report}})
	if err != nil {
		return err //nolint:wrapcheck // numbers and a name always encode
	}
	var answer struct {
		Ignored []string `json:"ignored"`
	}
	if err := r.client.request(ctx, http.MethodPost, "/v1/report", body, &answer); err != nil {
		return err
	}
	if len(answer.Ignored) > 0 {
		return &Error{Kind: KindRequest, Status: http.StatusOK, Detail: "No active rule adapts to this backend."}
	}
	return nil
}
