// Package redisbucket keeps token buckets in Redis, where every process finds them.
//
// A check costs one round trip, however many tiers it has, and is decided atomically on Redis's own
// clock: all its tokens are taken or none. Checks that are asked at the same time share round trips:
// an idle store sends a check at once, and those that come while its few connections are busy go
// together when one is free (see queue). Together means a few scripts in one pipeline, at most 64
// checks or 256 buckets each, so that Redis is never busy with one for long. The checks of a script
// are of one tenant, whose keys are all in one slot of a Redis Cluster, unless Check finds a single
// server. A pipeline asks about 1024 buckets at most; a larger batch is several, one after the other
// and each with a time budget of its own, and other
// callers' checks come in between. take.lua is the script, the format of a bucket, and the place to
// start reading.
//
// When Redis is down, Take says so within its time budget (50 ms unless told otherwise) and decides
// nothing; what happens to the check is for the caller. The budget counts from the call, waiting
// included. A pipeline that fails fails its own checks alone, and one that hangs holds up no others for
// longer than a tenth of the budget. After five pipelines in a row have failed, a circuit breaker
// answers for Redis at once, and lets one through every quarter of a second to see whether it is back;
// the driver's own back-off after failed dials can add a second to that.
// An ask that got no answer may have been executed, so it is never repeated: tokens are taken at
// most once. The exceptions are answers that say nothing was executed: that Redis does not
// know the script (after SCRIPT FLUSH or a restart), and then the source is sent; or that the keys are of
// several slots, and then tenants go apart. The scripts of that one pipeline may run in another order.
//
// A bucket's key expires ten seconds after it is full. A broken value counts as a fresh bucket, is
// replaced, and counted; a key of another type is replaced once tokens are taken. A value in a version that
// take.lua does not know is left alone, and the checks that need it are not answered. Redis
// must not evict keys on its own, since that hands out fresh buckets: see Check.
package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/sluicegate/sluice/internal/enforce"
)

// DefaultBudget is how long Redis has for an answer when nothing else is said.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is how many failures in a row open the breaker: enough that one dropped
	// connection does not, and few enough that hardly anybody waits for a dead Redis.
	tripAfter = 5
	// probeEvery is how long an open breaker waits before it lets one ask through.
	probeEvery = 250 * time.Millisecond
)

// Store implements enforce.Buckets, enforce.Creditor and enforce.Settler. It is safe for concurrent use.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string // of all keys
	budget  time.Duration
	breaker *gobreaker.CircuitBreaker[struct{}]
	broken  atomic.Int64
	unknown atomic.Int64
	queue   *queue
	// oneServer says that Check found one server to keep all buckets, refused that a script was refused for having
	// keys that are not kept together.
	oneServer, refused atomic.Bool
	// stamp is the time in microseconds since the Unix epoch, 0 for Redis's own. Only tests name a time.
	stamp func() int64
	// walkPause is the least pause of a walk after each command.
	walkPause time.Duration
}

var (
	_ enforce.Buckets  = (*Store)(nil)
	_ enforce.Creditor = (*Store)(nil)
	_ enforce.Settler  = (*Store)(nil)
)

// New returns a store on a client made from Options; other settings of the client retry scripts or
// wait longer than the budget. Redis need not be reachable yet. A budget of 0 means DefaultBudget.
// The caller closes the client, once no Take is under way: the store itself has no goroutines that
// outlive one by more than the budget.
func New(rdb redis.UniversalClient, budget time.Duration) *Store { return NewPrefixed(rdb, budget, "") }

// NewPrefixed is New for one of several deployments that keep their buckets in one Redis database: each
// has a prefix of its own, without braces.
func NewPrefixed(rdb redis.UniversalClient, budget time.Duration, prefix string) *Store {
	if budget <= 0 {
		budget = DefaultBudget
	}
	s := &Store{
		rdb:    rdb,
		prefix: prefix,
		budget: budget,
		stamp:  func() int64 { return 0 },

		walkPause: leastPause,
		breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
			Timeout:     probeEvery,
			ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
			// Callers of the same client that keep all its connections busy are no outage. If they opened
			// the breaker, a spike would make every process limit on its own just when limits matter.
			// What is refused for its keys is sent again.
			IsExcluded: func(err error) bool { return errors.Is(err, redis.ErrPoolTimeout) || isOfSlots(err) },
		}),
	}
	s.queue = newQueue(budget, s.send)
	return s
}

// Take implements enforce.Buckets. It returns an error within the budget if Redis does not answer,
// and at once while the breaker is open. A batch of several pipelines that Redis does answer can take
// as many budgets.
func (s *Store) Take(ctx context.Context, asks []enforce.Ask) error {
	if ctx.Done() == nil { // as from enforce.Limiter
		return s.take(asks)
	}
	// The pipeline carries others' checks too and must not end with this caller, who must not find
	// its asks written to after it has left.
	own := make([]enforce.Ask, len(asks))
	for i := range asks {
		own[i] = asks[i]
		own[i].Tiers = slices.Clone(asks[i].Tiers)
	}
	answered := make(chan error, 1)
	go func() { answered <- s.take(own) }()
	select {
	case err := <-answered:
		for i := range asks {
			copy(asks[i].Tiers, own[i].Tiers)
			asks[i].Allowed, asks[i].Answered = own[i].Allowed, own[i].Answered
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("ask redis about %d checks: %w", len(asks), ctx.Err())
	}
}

// take is Take for a caller that stays.
func (s *Store) take(asks []enforce.Ask) error {
	for i := range asks {
		ask := &asks[i]
		if len(ask.Tiers) > maxTiers {
			return fmt.Errorf("a check of %d tiers: redis is asked about %d at most", len(ask.Tiers), maxTiers)
		}
		// Without tiers there is nothing to ask.
		ask.Answered = len(ask.Tiers) == 0
		ask.Allowed = ask.Answered
	}
	if err := s.queue.take(asks); err != nil {
		return fmt.Errorf("ask redis about %d checks: %w", len(asks), err)
	}
	return nil
}

// send runs the scripts of a pipeline.
func (s *Store) send(p *pipeline) {
	apart := !s.oneServer.Load() || s.refused.Load()
	s.sendPacked(p, apart)
	if !apart && isOfSlots(p.err) { // nothing of those scripts was executed
		s.refused.Store(true)
		s.sendPacked(p, true)
	}
}

// isOfSlots says that Redis, or what stands before it, refused a script because its keys are not kept together. Redis
// Cluster says CROSSSLOT, and each proxy has words of its own.
func isOfSlots(err error) bool {
	var refusal redis.Error
	return errors.As(err, &refusal) && strings.Contains(strings.ToLower(refusal.Error()), "slot")
}

// sendPacked packs what has no answer into scripts, runs them, and reads the answers of those that have one even if
// others have not: they took their tokens.
func (s *Store) sendPacked(p *pipeline, apart bool) {
	scripts := p.pack(s.prefix, apart)
	if len(scripts) == 0 {
		return
	}
	_, p.err = s.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithDeadline(context.Background(), p.deadline)
		defer cancel()
		return struct{}{}, s.run(ctx, scripts)
	})
	for _, script := range scripts {
		if script.cmd == nil || script.cmd.Err() != nil || script.cmd.Val() == "" {
			continue // there is no answer, and p.err says why
		}
		broken, err := script.answer(script.cmd.Val())
		if err != nil {
			p.err = errors.Join(p.err, err)
		}
		s.broken.Add(int64(broken))
		s.unknown.Add(int64(script.unknown))
	}
}

// run executes scripts in one round trip, or in two if Redis does not know take.lua.
func (s *Store) run(ctx context.Context, scripts []*script) error {
	if err := s.exchange(ctx, scripts, false); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	var unknown []*script
	for _, script := range scripts {
		err := script.cmd.Err()
		switch {
		case err == nil:
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, script)
		default:
			return err
		}
	}
	return s.exchange(ctx, unknown, true)
}

// exchange sends scripts in one round trip and returns the first error. A single one is spared the
// pipeline's bookkeeping.
func (s *Store) exchange(ctx context.Context, scripts []*script, bySource bool) error {
	if len(scripts) == 1 {
		scripts[0].cmd = scripts[0].command(ctx, bySource, s.stamp())
		return s.rdb.Process(ctx, scripts[0].cmd)
	}
	pipe := s.rdb.Pipeline()
	for _, script := range scripts {
		script.cmd = script.command(ctx, bySource, s.stamp())
		if err := pipe.Process(ctx, script.cmd); err != nil {
			return err
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// State is what the store thinks of Redis.
type State string

// The states. A probing store waits for the answer to the one ask that it let through.
const (
	Up      State = "up"
	Probing State = "probing"
	Down    State = "down"
)

// State returns what the store thinks of Redis, without asking it.
func (s *Store) State() State {
	switch s.breaker.State() {
	case gobreaker.StateClosed:
		return Up
	case gobreaker.StateHalfOpen:
		return Probing
	default:
		return Down
	}
}

// Broken returns how many stored values were no bucket since the store was made. Somebody else
// writes to this Redis if it grows.
func (s *Store) Broken() int64 { return s.broken.Load() }

// Unknown returns how many answers were missed since the store was made because a bucket's value had a version
// that this process does not know: a newer process shares this Redis.
func (s *Store) Unknown() int64 { return s.unknown.Load() }

// Ping asks Redis for a sign of life, past the breaker, within the budget.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping redis: %w", err)
	}
	return nil
}

// Check looks for settings of Redis under which limits do not hold, and returns a sentence for
// people about each. An error means that Redis did not answer, within the budget, or does not let
// this client read its settings.
//
// It also finds out whether one server keeps all buckets, in which case checks of several tenants share scripts. A
// server that does not say so, in what INFO answers, is taken for several: a proxy that spreads keys over servers
// would look for a script's keys where only the first is.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	about, err := s.rdb.Info(ctx, "server").Result()
	if refusal := redis.Error(nil); err == nil || errors.As(err, &refusal) {
		s.oneServer.Store(strings.Contains(about, "_mode:standalone")) // Redis says redis_mode, Valkey server_mode
	}
	settings, err := s.rdb.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return nil, fmt.Errorf("read redis's maxmemory-policy: %w", err)
	}
	if policy := settings["maxmemory-policy"]; policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf(
			"redis's maxmemory-policy is %s: it may drop buckets that are in use, whose owners then start with a full one; set noeviction",
			policy))
	}
	return warnings, nil
}
