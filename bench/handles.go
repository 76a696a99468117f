package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

// decideInProcess compares a decision on a handle of the Go client with golang.org/x/time/rate, which is a token bucket
// of one process, and with a reading of the clocks, which both need. The limit is never reached on either side, so both
// take a token each time.
func decideInProcess(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	lender, err := startLender(ctx)
	if err != nil {
		return nil, err
	}
	defer lender.close()
	handle, err := lender.client.Handle(sluice.Check{UserID: "42"})
	if err != nil {
		return nil, err
	}
	limiter := rate.NewLimiter(rate.Limit(rules.MaxRate), rules.MaxBurst)
	try := func() bool { return handle.Try() == sluice.Allowed }
	now := func() bool { return !time.Now().IsZero() }
	var lines []line
	for _, c := range []struct {
		name       string
		goroutines int
		most       float64 // beside the clock
	}{
		{"one goroutine", 1, 1.5},
		{"all cores on one bucket", runtime.GOMAXPROCS(0), 1.8},
	} {
		var clock, theirs, ours, shares []float64
		for range rounds {
			reading, _ := decisions(c.goroutines, round/4, now)
			before, _ := decisions(c.goroutines, round/4, limiter.Allow)
			_, _ = decisions(c.goroutines, round/4, try) // an idle handle has given its tokens back
			after, allowed := decisions(c.goroutines, round/2, try)
			clock, theirs, ours = append(clock, reading), append(theirs, before), append(ours, after)
			shares = append(shares, allowed)
		}
		if share := median(shares); share < 0.9 {
			return nil, fmt.Errorf("only %.0f %% of the tries took a token, so little was measured", 100*share)
		}
		lines = append(lines,
			ratioLine("a handle's Try ÷ time.Now, "+c.name+", ns", "%.0f", median(clock), median(ours), -c.most),
			ratioLine("a handle's Try ÷ x/time/rate.Allow, "+c.name+", ns", "%.0f", median(theirs), median(ours), -1))
	}
	return lines, nil
}

// decisions returns how many nanoseconds a decision takes in each of several goroutines, and the share that was
// allowed.
func decisions(goroutines int, round time.Duration, decide func() bool) (nanoseconds, allowedShare float64) {
	const inTurn = 1000
	var mu sync.Mutex
	var all sync.WaitGroup
	calls, allowed := 0, 0
	began := time.Now()
	for range goroutines {
		all.Go(func() {
			n, passed := 0, 0
			for time.Since(began) < round {
				for range inTurn {
					if decide() {
						passed++
					}
				}
				n += inTurn
			}
			mu.Lock()
			defer mu.Unlock()
			calls, allowed = calls+n, allowed+passed
		})
	}
	all.Wait()
	took := time.Since(began)
	return float64(took.Nanoseconds()) * float64(goroutines) / float64(calls), float64(allowed) / float64(calls)
}

// lender is a check server in this process, with buckets in memory and one rule that is never exceeded, and a client of
// it.
type lender struct {
	server *checkapi.Server
	served chan error
	client *sluice.Client
}

type oneSnapshot struct{ only *snapshot.Snapshot }

func (s oneSnapshot) Snapshot() *snapshot.Snapshot { return s.only }

type unobserved struct{}

func (unobserved) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (unobserved) StoreAnswered(time.Duration, error)                          {}
func (unobserved) RequestAnswered(string, int, time.Duration, string)          {}

func startLender(ctx context.Context) (*lender, error) {
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		return nil, err
	}
	token, keyID, digest := auth.NewKeyToken()
	rows := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "bench", Settings: rules.DefaultSettings()}},
		Rules: []rules.Rule{{
			ID: 1, TenantID: 1, Pattern: pattern, RatePerSecond: rules.MaxRate, RateUnit: rules.PerSecond,
			Burst:     rules.MaxBurst,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true, Version: 1,
		}},
		Keys: []auth.Key{{
			ID: keyID, TenantID: 1, Digest: digest,
			Permissions: []auth.Permission{auth.PermissionLease, auth.PermissionCheck},
		}},
	})
	buckets := membucket.New(membucket.Options{})
	log := slog.New(slog.DiscardHandler)
	l := &lender{served: make(chan error, 1)}
	l.server = checkapi.NewServer(checkapi.Config{
		Config: door.Config{
			Snapshots: oneSnapshot{rows}, Log: log, Observer: unobserved{},
			Readiness: func() httpapi.Readiness { return httpapi.Readiness{Open: true, RulesLoaded: true} },
		},
		Limiter: enforce.NewLimiter(buckets, buckets, unobserved{}, nil),
		Lessor:  enforce.NewLessor(buckets, unobserved{}, nil, func(error) {}),
	})
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the client: %w", err)
	}
	//nolint:contextcheck // connections outlive the call that starts the server
	go func() { l.served <- l.server.Serve(listener) }()
	l.client, err = sluice.New(sluice.Config{URL: "http://" + listener.Addr().String(), Key: token, Logger: log})
	if err != nil {
		return nil, errors.Join(err, l.server.Close())
	}
	return l, nil
}

func (l *lender) close() {
	l.client.Close()
	_ = l.server.Close()
	if err := <-l.served; !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "bench: the lender ended with", err)
	}
}
