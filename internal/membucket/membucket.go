// Package membucket keeps token buckets in this process's memory.
//
// It is the store of a single process without Redis, and what tiers with the failure mode "local"
// fall back to while Redis is away. It answers exactly as the Redis store does, never fails, waits
// for nobody but its own mutex, and forgets everything when the process ends.
//
// One mutex guards one map. A check of four tiers holds it for a fraction of a microsecond, which
// is millions of checks per second; shards would raise a ceiling that the HTTP server above never
// reaches, and would need one lock per tier, in order, to keep a check all or nothing.
//
// Memory is bounded. A bucket that has been full for a while is the same as no bucket, and each new
// bucket pays for a look at two old ones, so that idle ones go at least as fast as new ones come.
// A store that is at its bound all the same drops, of a small sample, the bucket that would be full
// soonest: its owner is given the least. Somebody who makes up identities to push others out
// only pushes out those identities, which have hardly taken anything.
package membucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// DefaultMaxBuckets is the bound of a store that names none: about 280 MB when subjects
// are 40 bytes, and 310 MB when they are long.
const DefaultMaxBuckets = 1_000_000

const (
	// slack is how long a bucket stays after it is full. It holds the limit in force, and a caller
	// with an older one must find it; callers are seconds behind. The Redis store does the same.
	slack = 10 * time.Second
	// swept is how many buckets each new one pays to look at. With one, the last in the ring, which
	// takes the place of what is removed, would be passed over too often to keep up.
	swept = 2
	// sample is how many buckets compete to stay when the store is at its bound.
	sample = 8
)

// Options are the settings of a store; the zero value is right for production.
type Options struct {
	// MaxBuckets bounds the number of buckets; 0 means DefaultMaxBuckets.
	MaxBuckets int
	// Clock returns microseconds since the Unix epoch; nil means the wall clock, by which limits
	// say since when they are in force.
	Clock func() int64
}

// Store implements enforce.Buckets, enforce.Creditor and enforce.Settler. It is safe for concurrent use.
type Store struct {
	clock func() int64
	max   int

	mu      sync.Mutex
	buckets map[enforce.Key]*bucket
	// ring holds the same buckets in an order for the hand to walk: a map cannot be walked a few
	// at a time.
	ring      []*bucket
	hand      int
	evictions int64
	held      []*enforce.Bucket // of the ask at hand; kept to not allocate
	credits   map[enforce.Key]pastCredit
}

type bucket struct {
	enforce.Bucket
	key enforce.Key
	at  int // place in ring
}

var (
	_ enforce.Buckets  = (*Store)(nil)
	_ enforce.Creditor = (*Store)(nil)
	_ enforce.Settler  = (*Store)(nil)
)

// New returns an empty store.
func New(options Options) *Store {
	s := &Store{clock: options.Clock, max: options.MaxBuckets, buckets: make(map[enforce.Key]*bucket), credits: map[enforce.Key]pastCredit{}}
	if s.max <= 0 {
		s.max = DefaultMaxBuckets
	}
	if s.clock == nil {
		s.clock = func() int64 { return time.Now().UnixMicro() }
	}
	return s
}

// Take implements enforce.Buckets. It never returns an error, and answers even when ctx is done:
// it is what remains when another store has used up the time.
func (s *Store) Take(_ context.Context, checks []enforce.BucketCheck) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Read under the lock: a time from before the wait for it would look like a clock that went
	// back, and what was earned since would be earned again.
	now := s.clock()
	for i := range checks {
		s.take(&checks[i], now)
	}
	return nil
}

func (s *Store) take(check *enforce.BucketCheck, now int64) {
	s.held = s.held[:0]
	for i := range check.Tiers {
		s.held = append(s.held, s.bucket(check.Tiers[i].Key))
	}
	// Old buckets are written before new ones are inserted: an insertion sweeps, and would drop as
	// idle an old bucket that this very ask takes from.
	if !check.TakeFrom(s.held, now) {
		return
	}
	for i, held := range s.held {
		if tier := &check.Tiers[i]; tier.Holds && held == nil {
			s.insert(bounded(tier.Key), tier.Bucket, now)
		}
	}
}

// Credit implements enforce.Creditor. It never returns an error.
func (s *Store) Credit(
	_ context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after = s.credit(key, limit, amount, s.clock())
	return before, after, nil
}

func (s *Store) credit(key enforce.Key, limit enforce.Limit, amount enforce.Tokens, now int64) (before, after enforce.Bucket) {
	held := s.bucket(key)
	if held == nil {
		before = enforce.NewBucket(limit, now)
	} else {
		before = *held
		before.Settle(limit, 0, now)
	}
	after = before
	after.Credit(amount)
	switch {
	case held != nil:
		*held = after
	case after != before:
		s.insert(bounded(key), after, now)
	}
	return before, after
}

// settledAtOnce is how many buckets Settle looks at before it lets others have the store: some 50 µs.
const settledAtOnce = 500

// Settle implements enforce.Settler. It fails only when ctx ends.
func (s *Store) Settle(ctx context.Context, edits []enforce.Edit) error {
	edited := make(map[enforce.Key]*enforce.Edit, len(edits)) // by keys without a subject
	for i := range edits {
		edited[enforce.Key{Tenant: edits[i].Tenant, Rule: edits[i].Rule}] = &edits[i]
	}
	// From the end on, because a removed bucket's place is taken by the last, which was settled before it.
	for from := math.MaxInt; from > 0; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("settle buckets in memory: %w", context.Cause(ctx))
		}
		s.mu.Lock()
		from = min(from, len(s.ring))
		now := s.clock()
		for range min(settledAtOnce, from) {
			from--
			b := s.ring[from]
			edit := edited[enforce.Key{Tenant: b.key.Tenant, Rule: b.key.Rule}]
			if edit == nil {
				continue
			}
			if limit, ok := edit.LimitOf(b.key.Subject, len(b.key.Subject) > longSubject); ok {
				look := enforce.BucketCheck{ReadAt: edit.ReadAt, Tiers: []enforce.Tier{{Limit: limit}}}
				look.TakeFrom([]*enforce.Bucket{&b.Bucket}, now)
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// bucket returns what the store holds of a bucket, or nil.
func (s *Store) bucket(key enforce.Key) *enforce.Bucket {
	if b := s.buckets[bounded(key)]; b != nil {
		return &b.Bucket
	}
	return nil
}

// longSubject is how long a subject may be, in bytes, to be kept as it is.
const longSubject = 64

// bounded replaces a longer subject by its SHA-256, so that a bound on buckets is a bound on memory
// whatever callers send. In hexadecimal behind a # that is longer than any subject kept as it is, and
// so equal to none.
func bounded(key enforce.Key) enforce.Key {
	if len(key.Subject) > longSubject {
		sum := sha256.Sum256([]byte(key.Subject))
		key.Subject = "#" + hex.EncodeToString(sum[:])
	}
	return key
}

// Len returns how many buckets the store holds.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ring)
}

// Evictions returns how many buckets were dropped before they were full, to keep the bound. If it
// grows, callers are allowed more than their limits, and the bound should be higher.
func (s *Store) Evictions() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evictions
}

func (s *Store) insert(key enforce.Key, state enforce.Bucket, now int64) {
	s.sweep(now)
	if len(s.ring) >= s.max {
		s.evict(now)
	}
	// The subject may be a small part of a large request, which the map would keep alive.
	key.Subject = strings.Clone(key.Subject)
	b := &bucket{Bucket: state, key: key, at: len(s.ring)}
	s.buckets[key] = b
	s.ring = append(s.ring, b)
}

// sweep drops what is idle among the next few buckets.
func (s *Store) sweep(now int64) {
	for range min(swept, len(s.ring)) {
		if b := s.next(); b.fullIn(now) <= -slack {
			s.remove(b)
		}
	}
}

// evict drops, of the next few buckets, the one that would be full soonest.
func (s *Store) evict(now int64) {
	soonest := s.next()
	for range min(sample, len(s.ring)) - 1 {
		if b := s.next(); b.fullIn(now) < soonest.fullIn(now) {
			soonest = b
		}
	}
	if soonest.fullIn(now) > 0 {
		s.evictions++
	}
	s.remove(soonest)
}

// next moves the hand on by one bucket. There must be one.
func (s *Store) next() *bucket {
	if s.hand >= len(s.ring) {
		s.hand = 0
	}
	b := s.ring[s.hand]
	s.hand++
	return b
}

// remove forgets a bucket; the last in the ring takes its place.
func (s *Store) remove(b *bucket) {
	last := len(s.ring) - 1
	s.ring[b.at] = s.ring[last]
	s.ring[b.at].at = b.at
	s.ring[last] = nil
	s.ring = s.ring[:last]
	delete(s.buckets, b.key)
}

// fullIn returns how long until the bucket is full; negative if it has been for a while. A clock
// that went back makes it longer, so nothing is dropped too early.
func (b *bucket) fullIn(now int64) time.Duration {
	return b.TimeToFull() - time.Duration(now-b.Stamp)*time.Microsecond
}
