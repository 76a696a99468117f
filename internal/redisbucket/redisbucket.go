// Package redisbucket keeps token buckets in Redis, where every process finds them.
//
// A check costs one round trip and one script, however many tiers it has, and is decided atomically
// on Redis's own clock: all its tokens are taken or none. A batch of checks is a few scripts in one
// pipeline, at most 64 checks or 256 buckets each and one tenant each, so that Redis is never busy
// with one for long and Redis Cluster finds all keys of a script in one slot. Beyond 1024 buckets it is
// several pipelines, one after the other and each with a time budget of its own, so that other callers'
// checks come in between. take.lua is the script, the format of a bucket, and the place to start
// reading.
//
// When Redis is down, Take says so within its time budget (50 ms unless told otherwise) and decides
// nothing; what happens to the check is for the caller. After five failures in a row a circuit
// breaker answers for Redis at once, and lets one ask through every quarter of a second to see
// whether it is back; the driver's own back-off after failed dials can add a second to that.
// An ask that got no answer may have been executed, so it is never repeated: tokens are taken at
// most once. The one exception is an answer that says nothing was executed, because Redis does not
// know the script (after SCRIPT FLUSH or a restart); then the source is sent, and the scripts of
// that one pipeline may run in another order.
//
// A bucket's key expires ten seconds after it is full. A value that is no bucket counts as a fresh
// bucket, is replaced, and counted; a key of another type is replaced once tokens are taken. Redis
// must not evict keys on its own, since that hands out fresh buckets: see Check.
package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	// maxPipelineKeys is how many keys the scripts of one pipeline have at most, unless it is a
	// single script: a few milliseconds of Redis's time.
	maxPipelineKeys = 4 * maxKeys
	// probeEvery is how long an open breaker waits before it lets one ask through.
	probeEvery = 250 * time.Millisecond
)

// Store implements enforce.Buckets and enforce.Creditor. It is safe for concurrent use.
type Store struct {
	rdb     redis.UniversalClient
	budget  time.Duration
	breaker *gobreaker.CircuitBreaker[struct{}]
	broken  atomic.Int64
}

var (
	_ enforce.Buckets  = (*Store)(nil)
	_ enforce.Creditor = (*Store)(nil)
)

// New returns a store on a client made from Options; other settings of the client retry scripts or
// wait longer than the budget. Redis need not be reachable yet. A budget of 0 means DefaultBudget.
// The caller closes the client.
func New(rdb redis.UniversalClient, budget time.Duration) *Store {
	if budget <= 0 {
		budget = DefaultBudget
	}
	return &Store{
		rdb:    rdb,
		budget: budget,
		breaker: gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
			Timeout:     probeEvery,
			ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
			IsExcluded:  saysNothing,
		}),
	}
}

// Take implements enforce.Buckets. It returns an error within the budget if Redis does not answer,
// and at once while the breaker is open. A batch of several pipelines that Redis does answer can take
// as many budgets.
func (s *Store) Take(ctx context.Context, asks []enforce.Ask) error {
	return s.take(ctx, asks, 0)
}

// take is Take at a time in microseconds since the Unix epoch, 0 for Redis's own. Only tests name a
// time.
func (s *Store) take(ctx context.Context, asks []enforce.Ask, stamp int64) error {
	scripts, err := plan(asks)
	for err == nil && len(scripts) > 0 {
		together := scripts[:onePipeline(scripts)]
		scripts = scripts[len(together):]
		err = s.takeTogether(ctx, together, stamp)
	}
	if err != nil {
		return fmt.Errorf("ask redis about %d checks: %w", len(asks), err)
	}
	return nil
}

// onePipeline returns how many of the scripts go together.
func onePipeline(scripts []*script) int {
	keys := 0
	for i, script := range scripts {
		if keys += len(script.keys); keys > maxPipelineKeys && i > 0 {
			return i
		}
	}
	return len(scripts)
}

// takeTogether runs scripts in one pipeline, and reads the answers of those that have one even if
// others have not: they took their tokens.
func (s *Store) takeTogether(ctx context.Context, scripts []*script, stamp int64) error {
	_, err := s.breaker.Execute(func() (struct{}, error) {
		limited, cancel := context.WithTimeout(ctx, s.budget)
		defer cancel()
		err := s.run(limited, scripts, stamp)
		if err != nil && gone(ctx, limited, err) {
			err = callerGone{err}
		}
		return struct{}{}, err
	})
	for _, script := range scripts {
		if script.cmd == nil || script.cmd.Err() != nil || script.cmd.Val() == "" {
			continue // there is no answer, and err says why
		}
		broken, unreadable := script.answer(script.cmd.Val())
		if unreadable != nil {
			return errors.Join(err, unreadable)
		}
		s.broken.Add(int64(broken))
	}
	return err
}

// saysNothing tells the errors that are not Redis's fault: a caller that went away, and more callers
// at once than connections. If the latter opened the breaker, a spike would make every process limit
// on its own just when limits matter.
func saysNothing(err error) bool {
	_, gone := errors.AsType[callerGone](err)
	return gone || errors.Is(err, redis.ErrPoolTimeout)
}

// callerGone marks the error of an ask whose caller cancelled it or gave it less time than the
// budget: it says nothing about Redis.
type callerGone struct{ error }

// Unwrap returns the error itself.
func (e callerGone) Unwrap() error { return e.error }

// gone says whether an ask failed because its caller went away. The socket's deadline can strike a
// moment before the caller's context notices its own.
func gone(caller, limited context.Context, err error) bool {
	if caller.Err() != nil {
		return true
	}
	theirs, hurried := caller.Deadline()
	ours, _ := limited.Deadline()
	timeout, ok := errors.AsType[net.Error](err)
	return hurried && !theirs.After(ours) && ok && timeout.Timeout()
}

// run executes scripts in one round trip, or in two if Redis does not know take.lua.
func (s *Store) run(ctx context.Context, scripts []*script, stamp int64) error {
	if err := s.send(ctx, scripts, false, stamp); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
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
	return s.send(ctx, unknown, true, stamp)
}

// send sends scripts in one round trip and returns the first error. A single one is spared the
// pipeline's bookkeeping.
func (s *Store) send(ctx context.Context, scripts []*script, bySource bool, stamp int64) error {
	if len(scripts) == 1 {
		scripts[0].cmd = scripts[0].command(ctx, bySource, stamp)
		return s.rdb.Process(ctx, scripts[0].cmd)
	}
	pipe := s.rdb.Pipeline()
	for _, script := range scripts {
		script.cmd = script.command(ctx, bySource, stamp)
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
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
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
