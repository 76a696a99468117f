package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// node is a Redis server that keeps buckets. It has a queue and a circuit breaker of its own, so that a server that
// fails delays and degrades only the checks whose buckets it keeps.
type node struct {
	store   *Store
	addr    string // host:port, or the name of a Sentinel group
	client  redis.UniversalClient
	breaker *gobreaker.CircuitBreaker[struct{}]
	queue   *queue
}

func (s *Store) newNode(addr string, client redis.UniversalClient) *node {
	n := &node{store: s, addr: addr, client: client, breaker: newBreaker()}
	n.queue = newQueue(s.budget, n.send)
	return n
}

func newBreaker() *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     probeEvery,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		// Callers of the same client that keep all its connections busy are no outage. If they opened
		// the breaker, a spike would make every process limit on its own just when limits matter.
		IsExcluded: func(err error) bool { return errors.Is(err, redis.ErrPoolTimeout) },
	})
}

func (n *node) state() State {
	switch n.breaker.State() {
	case gobreaker.StateClosed:
		return Up
	case gobreaker.StateHalfOpen:
		return Probing
	default:
		return Down
	}
}

// send runs the scripts of a pipeline.
func (n *node) send(p *pipeline) {
	s := n.store
	apart := !s.standalone.Load() || s.crossSlot.Load()
	n.sendPacked(p, apart)
	if !apart && slices.ContainsFunc(p.scripts, func(s *script) bool { return isCrossSlot(s.err) }) { // it was not executed
		s.crossSlot.Store(true)
		n.sendPacked(p, true)
	}
	if s.cluster != nil && p.err != nil && !isRefusal(p.err) && !errors.Is(p.err, ErrUnknownVersion) {
		s.cluster.client.ReloadState(context.Background()) // in the background, one at a time
	}
}

// sendPacked packs what has no answer into scripts, runs them, and reads the answers of those that have one even if
// others have not: they took their tokens.
func (n *node) sendPacked(p *pipeline, apart bool) {
	p.err = nil
	scripts := p.pack(n.store.prefix, apart)
	if len(scripts) == 0 {
		return
	}
	_, err := n.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithDeadline(context.Background(), p.deadline)
		defer cancel()
		return struct{}{}, n.run(ctx, scripts, n.store.stamp())
	})
	p.err = n.about(err)
	for _, script := range scripts {
		if script.cmd == nil {
			continue // the breaker is open
		}
		script.err = script.cmd.Err()
		p.answered = p.answered || script.err == nil || isAnswer(script.err)
		if script.err == nil {
			var broken int
			broken, script.err = script.answer(script.cmd.Val())
			n.store.broken.Add(int64(broken))
			n.store.unknown.Add(int64(script.unknown))
		}
		if script.err != nil {
			script.err = n.about(script.err)
			if p.err == nil {
				p.err = script.err
			}
		}
	}
}

// run executes scripts in one round trip, or in two if the node does not know take.lua. It returns an error if the
// node failed; each script's command has the error of its own.
func (n *node) run(ctx context.Context, scripts []*script, stamp int64) error {
	n.exchange(ctx, scripts, false, stamp)
	var unknown []*script
	for _, script := range scripts {
		err := script.cmd.Err()
		switch {
		case err == nil:
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, script)
		case !isAnswer(err):
			return err // nobody knows whether the scripts were executed
		}
	}
	if unknown != nil {
		n.exchange(ctx, unknown, true, stamp)
	}
	for _, script := range scripts {
		if err := script.cmd.Err(); isFailure(err) {
			return err
		}
	}
	return nil
}

// exchange sends scripts in one round trip. A single one is spared the pipeline's bookkeeping.
func (n *node) exchange(ctx context.Context, scripts []*script, bySource bool, stamp int64) {
	if len(scripts) == 1 {
		scripts[0].cmd = scripts[0].command(ctx, bySource, stamp)
		scripts[0].cmd.SetErr(n.client.Process(ctx, scripts[0].cmd))
		return
	}
	pipe := n.client.Pipeline()
	for _, script := range scripts {
		script.cmd = script.command(ctx, bySource, stamp)
		_ = pipe.Process(ctx, script.cmd) // only queues it
	}
	_, _ = pipe.Exec(ctx) // returns the first of the commands' errors
}

// isAnswer reports whether Redis, or a proxy before it, gave the error as its answer to a command.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// isFailure reports whether an error says that a node cannot decide checks. Answers about a single slot say that the
// node works: the slot is elsewhere, moves, is nobody's, or is one of several that a script needs.
func isFailure(err error) bool {
	return err != nil && !isRedirect(err) && !isTryAgain(err) && !isUnserved(err) && !isCrossSlot(err)
}

// isRedirect reports whether an error names the node to ask instead.
func isRedirect(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ")
}

// isTryAgain reports whether only some of a script's keys have moved with their slot.
func isTryAgain(err error) bool { return redis.HasErrorPrefix(err, "TRYAGAIN") }

// isUnserved reports whether no node serves a script's slot. The other answer that begins with CLUSTERDOWN says that
// the node serves no slot at all.
func isUnserved(err error) bool {
	return redis.HasErrorPrefix(err, "CLUSTERDOWN") && strings.Contains(err.Error(), "Hash slot not served")
}

// isCrossSlot reports whether Redis, or a proxy before it, refused a script because its keys are not kept together.
// Redis Cluster says CROSSSLOT, and each proxy has words of its own.
func isCrossSlot(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !isRedirect(answer) && !isTryAgain(answer) && !redis.HasErrorPrefix(answer, "CLUSTERDOWN") &&
		strings.Contains(strings.ToLower(answer.Error()), "slot")
}

// isRefusal reports whether the circuit breaker answered for the node.
func isRefusal(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}

// about adds the node to an error.
func (n *node) about(err error) error {
	if err == nil || n.addr == "" {
		return err
	}
	return fmt.Errorf("redis node %s: %w", n.addr, err)
}
