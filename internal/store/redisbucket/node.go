package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/combine"
)

// node has its own combiner and breaker, so a failure affects only the checks of its buckets.
type node struct {
	store    *Store
	addr     string // host:port, or the name of a Sentinel group
	client   redis.UniversalClient
	breaker  *combine.Breaker
	combiner *combine.Combiner
	eras     *eras // nil for the router of a cluster, whose servers change
}

func (s *Store) newNode(addr string, client redis.UniversalClient) *node {
	n := &node{store: s, addr: addr, client: client}
	if _, isRouter := client.(*redis.ClusterClient); !isRouter {
		n.eras = &eras{connects: &s.connects, of: map[rules.TenantID]era{}}
	}
	// A busy pool is no outage: an open breaker would make every process limit on its own just when limits matter.
	n.breaker = combine.NewBreaker(tripAfter, func(err error) bool { return errors.Is(err, redis.ErrPoolTimeout) })
	n.combiner = combine.New(combine.Options{
		Weight: weight, Budget: s.budget, InFlight: usualInFlight, MaxInFlight: maxInFlight,
		FirstBatch: firstBatch, MaxBatch: maxBatch,
		Send: n.send,
		Shed: s.shed,
	})
	return n
}

func (n *node) report() Node {
	return Node{Addr: n.addr, State: n.breaker.State(), Trips: n.breaker.Trips()}
}

const (
	// usualInFlight: Redis executes one batch while the reply to another is read. With one, Redis needs a seventh less
	// time on two shared cores, but every check waits for a round trip first.
	usualInFlight = 2
	maxInFlight   = 16
	// maxBatch tiers take a few milliseconds of Redis's time.
	maxBatch   = 4 * maxKeys
	firstBatch = 64
)

func (n *node) send(sent *combine.Batch) {
	s := n.store
	if s.observer != nil {
		for _, c := range sent.Calls {
			s.observer.Waited(sent.SentAt.Sub(c.QueuedAt))
		}
	}
	b := batchPool.Get().(*batch)
	b.Batch = sent
	apart := s.keepsApart()
	n.run(b, b.pack(s, apart))
	if refused := b.splittable(); len(refused) > 0 {
		if !apart && slices.ContainsFunc(refused, func(s script) bool { return isCrossSlot(s.run().err) }) {
			s.crossSlot.Store(true)
		}
		n.run(b, b.split(s, refused))
	}
	b.Err = nil
	if failed := slices.IndexFunc(b.scripts, func(s script) bool { return s.run().err != nil }); failed >= 0 {
		b.Err = b.scripts[failed].run().err
		b.assignErrors()
	}
	if s.cluster != nil && b.Err != nil && !combine.IsRefusal(b.Err) && !errors.Is(b.Err, ErrUnknownVersion) &&
		!errors.Is(b.Err, errLost) {
		s.cluster.client.ReloadState(context.Background()) // in the background, one at a time
	}
	b.release()
}

func (n *node) run(b *batch, scripts []script) {
	if len(scripts) == 0 {
		return
	}
	_, err := n.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithDeadline(context.Background(), b.Deadline)
		defer cancel()
		return struct{}{}, n.runScripts(ctx, scripts, n.store.stamp())
	})
	for _, script := range scripts {
		run := script.run()
		if run.cmd == nil { // the breaker is open
			run.err = n.withAddr(nothingTaken(err))
			continue
		}
		if _, isCall := script.(*call); !isCall && n.store.observer != nil {
			n.store.observer.ScriptSent(len(run.checks))
		}
		run.err = run.cmd.Err()
		b.Answered = b.Answered || run.err == nil || isAnswer(run.err)
		if run.err == nil {
			run.err = script.readReply(run.cmd.Val())
		} else {
			n.store.refusals.note(n.addr, run.err, time.Now())
			if isOfSlot(run.err) {
				run.err = nothingTaken(run.err)
			}
		}
		run.err = n.withAddr(run.err)
	}
}

// runScripts takes two round trips if the node must load a script; err is the node's, and commands have their own.
func (n *node) runScripts(ctx context.Context, scripts []script, stamp int64) error {
	n.roundTrip(ctx, scripts, false, stamp)
	var unloaded []script
	for _, script := range scripts {
		err := script.run().cmd.Err()
		switch {
		case err == nil:
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unloaded = append(unloaded, script)
		case !isAnswer(err):
			return err // the scripts may have been executed
		}
	}
	if unloaded != nil {
		n.roundTrip(ctx, unloaded, true, stamp)
	}
	for _, script := range scripts {
		if err := script.run().cmd.Err(); isFailure(err) {
			return err
		}
	}
	return nil
}

func (n *node) roundTrip(ctx context.Context, scripts []script, bySource bool, stamp int64) {
	if len(scripts) == 1 {
		cmd := scripts[0].command(ctx, n, bySource, stamp)
		scripts[0].run().cmd = cmd
		cmd.SetErr(n.client.Process(ctx, cmd))
		return
	}
	pipe := n.client.Pipeline()
	for _, script := range scripts {
		cmd := script.command(ctx, n, bySource, stamp)
		script.run().cmd = cmd
		_ = pipe.Process(ctx, cmd) // only queues it
	}
	_, _ = pipe.Exec(ctx) // returns the first of the commands' errors
}

func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

func isFailure(err error) bool { return err != nil && !isOfSlot(err) }

// isOfSlot: the slot of the keys is elsewhere, moves, is unserved, or is one of several.
func isOfSlot(err error) bool {
	return isRedirect(err) || isTryAgain(err) || isUnserved(err) || isCrossSlot(err)
}

func nothingTaken(err error) error { return fmt.Errorf("%w: %w", err, enforce.ErrNothingTaken) }

func isRedirect(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ")
}

func isTryAgain(err error) bool { return redis.HasErrorPrefix(err, "TRYAGAIN") }

// isUnserved: nobody serves the slot; other CLUSTERDOWN errors mean that the node serves none.
func isUnserved(err error) bool {
	return redis.HasErrorPrefix(err, "CLUSTERDOWN") && strings.Contains(err.Error(), "Hash slot not served")
}

// Redis Cluster answers CROSSSLOT to keys in several slots; proxies have texts of their own.
func isCrossSlot(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !isRedirect(answer) && !isTryAgain(answer) &&
		!redis.HasErrorPrefix(answer, "CLUSTERDOWN") &&
		strings.Contains(strings.ToLower(answer.Error()), "slot")
}

func (n *node) withAddr(err error) error {
	if err == nil || n.addr == "" {
		return err
	}
	return fmt.Errorf("redis node %s: %w", n.addr, err)
}
