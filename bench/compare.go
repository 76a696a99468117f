package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

const compareUsers = 100_000

type system struct {
	name    string
	server  *process
	onRedis bool
	// request is a check of four limits: of a user, an endpoint, everybody, and an address.
	request func(c class, user, address int) []byte
	denies  string // what the body of a denial has, if its status is 200
	// edit changes the system's limits from those of tight to those of edited. It is nil if each request carries its
	// limits.
	edit func(ctx context.Context) error
	grpc *grpcLoad // instead of request
}

func (s *system) load(requests [][]byte) load {
	return load{addrs: []string{s.server.addr}, requests: requests, denies: s.denies, tolerant: true}
}

// traffic is a sequence of requests, which callers repeat.
type traffic struct {
	name string
	user func(i int) (c class, user int)
	of   int // requests until it begins again
}

func traffics() []traffic {
	skewed := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, compareUsers-1)
	byZipf := make([]int, 2*compareUsers)
	for i := range byZipf {
		byZipf[i] = int(skewed.Uint64())
	}
	return []traffic{
		{"100,000 users alike", func(i int) (class, int) { return plenty, i }, compareUsers},
		{"100 hot users", func(i int) (class, int) { return plenty, i }, 100},
		{"100,000 users by Zipf's law", func(i int) (class, int) { return plenty, byZipf[i] }, len(byZipf)},
		{"an attack: nine in ten requests from ten users", func(i int) (class, int) {
			if i%10 == 0 {
				return tight, i
			}
			return tight, compareUsers + i%10
		}, compareUsers},
	}
}

func compareSystems(ctx context.Context, full bool) error {
	w := &bytes.Buffer{}
	err := withSystems(ctx, func(s *stage, rdb redis.UniversalClient, systems []*system) error {
		callers, loads, laps := []int{32}, traffics()[:2], 3
		if full {
			callers, loads, laps = []int{32, 64}, traffics(), 5
		}
		fmt.Fprintf(w, "%s\n", machine(ctx))
		for _, of := range loads {
			for _, n := range callers {
				if err := compareSpeed(ctx, w, rdb, systems, of, n, laps); err != nil {
					return err
				}
			}
		}
		return compareExactness(ctx, w, s, rdb, systems)
	})
	_, writeErr := w.WriteTo(os.Stdout)
	return errors.Join(err, writeErr)
}

// compareSpeed lets the systems take turns of a second, after one that does not count. Each turn begins with the time
// that caches and leases need after a pause.
func compareSpeed(ctx context.Context, w *bytes.Buffer, rdb redis.UniversalClient, systems []*system, of traffic,
	callers, laps int,
) error {
	fmt.Fprintf(os.Stderr, "%s, %d callers\n", of.name, callers)
	found := make([]figures, len(systems))
	for lap := range laps + 1 {
		for i, s := range systems {
			if of.name[:2] == "an" && s.grpc != nil {
				continue // its limits are plenty
			}
			measured, err := compareLap(ctx, rdb, s, of, callers)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, of.name, err)
			}
			if lap == 0 {
				found[i] = figures{}
				continue
			}
			for name, value := range measured {
				found[i].add(name, value)
			}
		}
	}
	fmt.Fprintf(w, "\n**%s, %d callers**\n\n", strings.ToUpper(of.name[:1])+of.name[1:], callers)
	fmt.Fprintln(w, "| | checks/s | p50, ms | p99, ms | server's time, µs | Redis's, µs | denied | errors |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i, s := range systems {
		if found[i] == nil {
			continue
		}
		inRedis := "–"
		if s.onRedis {
			inRedis = fmt.Sprintf("%.1f", found[i].median("redis"))
		}
		fmt.Fprintf(w, "| %s | %.0f | %.2f | %.2f | %.1f | %s | %.0f %% | %.0f %% |\n", s.name,
			found[i].median("checks/s"), found[i].median("p50"), found[i].median("p99"), found[i].median("server"),
			inRedis,
			100*found[i].median("denied"), 100*found[i].median("failed"))
	}
	return nil
}

func compareLap(ctx context.Context, rdb redis.UniversalClient, s *system, of traffic, callers int) (
	map[string]float64, error,
) {
	var closed func(context.Context, int, time.Duration) (outcome, error)
	if s.grpc != nil {
		l := *s.grpc
		l.messages = make([][]byte, of.of)
		for i := range l.messages {
			_, user := of.user(i)
			l.messages[i] = s.grpc.messages[user%compareUsers]
		}
		closed = l.closed
	} else {
		requests := make([][]byte, of.of)
		for i := range requests {
			c, user := of.user(i)
			requests[i] = s.request(c, user, user)
		}
		closed = s.load(requests).closed
	}
	if _, err := closed(ctx, callers, leaseWarmUp); err != nil {
		return nil, err
	}
	var failed error
	used := func() (server time.Duration, inRedis float64) {
		server, err := s.server.processor()
		inRedis, redisErr := processorSeconds(ctx, rdb)
		failed = errors.Join(failed, err, redisErr)
		return server, inRedis
	}
	before, redisBefore := used()
	done, err := closed(ctx, callers, time.Second)
	after, redisAfter := used()
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	checks := float64(done.answers - done.failed)
	return map[string]float64{
		"checks/s": done.perSecond * checks / float64(done.answers), "denied": float64(done.denied) / checks,
		"failed": float64(done.failed) / float64(done.answers),
		"p50":    micros(done.percentile(0.5)) / 1e3, "p99": micros(done.percentile(0.99)) / 1e3,
		"server": micros(after-before) / checks, "redis": (redisAfter - redisBefore) * 1e6 / checks,
	}, nil
}

func withSystems(ctx context.Context, do func(*stage, redis.UniversalClient, []*system) error) (err error) {
	s, err := setStage(ctx)
	if err != nil {
		return err
	}
	defer s.clear()
	if err := s.build(ctx, ".", "./rivals"); err != nil {
		return err
	}
	options, err := redisbucket.Options(s.redis.URL(), budget)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	var systems []*system
	for _, start := range []func(context.Context, *stage) ([]*system, error){
		startSluices, startLibraries, startGubernator, startNginx, startEnvoyRatelimit,
	} {
		started, err := start(ctx, s)
		if err != nil {
			return err
		}
		systems = append(systems, started...)
	}
	return do(s, rdb, systems)
}
