package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestGreedyImportsDiffer answers the imports of all loops at once, and wants each to write something else than the
// others and than those before them.
func TestGreedyImportsDiffer(t *testing.T) {
	t.Parallel()
	type sent struct {
		path, line string
		answer     chan struct{}
	}
	imports := make(chan sent)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", jsonType)
		path := strings.TrimPrefix(r.URL.Path, "/api/v1/tenants/greedy")
		if path != "/users/import" && path != "/import" {
			<-r.Context().Done()
			return
		}
		answer := make(chan struct{})
		select {
		case imports <- sent{path, strings.SplitN(string(body), "\n", 3)[1], answer}:
		case <-r.Context().Done():
			return
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	n := &neighbourhood{base: server.URL, client: loopClient()}
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	n.beGreedy(ctx, &neighbour{Slug: "greedy", Alerts: make([]int64, greedyLoops)}, &loops)

	seen := map[string]bool{}
	arrived := map[string][]sent{}
	for len(seen) < 2*2*greedyLoops { // two rounds of each import
		one := <-imports
		of := arrived[one.path]
		if len(of) == 2*greedyLoops {
			continue
		}
		key := one.path + one.line
		if seen[key] {
			t.Fatalf("%s writes %q again", one.path, one.line)
		}
		seen[key] = true
		of = append(of, one)
		arrived[one.path] = of
		if len(of)%greedyLoops == 0 {
			for _, one := range of[len(of)-greedyLoops:] {
				close(one.answer)
			}
		}
	}
}
