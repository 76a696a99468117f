// Package membucket keeps buckets and reservations in this process's memory.
//
// A process without Redis uses it, and tiers that fail local while Redis is down. Answers equal those of the Redis
// store, never fail, and are forgotten with the process.
//
// A mutex guards one map: a check of four tiers holds it for a fraction of a microsecond, so it serves millions a
// second. Shards would need ordered locks to keep a check all or nothing.
//
// Memory is bounded: each insertion sweeps two old buckets, and forgets full ones. A full store evicts the bucket of a
// small sample that is full soonest, which gives away the fewest tokens. Made-up identities evict each other, because
// they have taken little. enforce.MaxReservations and MaxRecordIDs cap each tenant.
package membucket

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// DefaultMaxBuckets is about 280 MB, 310 MB with long subjects, or 410 MB of long limits.
const DefaultMaxBuckets = 1_000_000

const (
	// slack: callers may hold an older limit for seconds, and must find the one in force; all stores agree.
	slack = 10 * time.Second
	// swept: one is too few, because the sweep passes over the bucket that replaces a removed one.
	swept  = 2
	sample = 8
)

// Options are right for production by their zero value.
type Options struct {
	MaxBuckets      int
	CheckpointAbove time.Duration
	// IsCopy: this store decides only while a shared one is away, and checkpoints have the shared answers.
	IsCopy bool
	// Clock is in µs since the Unix epoch; nil is the wall clock, as in Limit.Since.
	Clock func() int64
}

// Store implements enforce.Buckets, Creditor and EditStore, and is safe for concurrent use.
type Store struct {
	clock  func() int64
	max    int
	above  time.Duration // see Options.CheckpointAbove
	isCopy bool

	mu      sync.Mutex
	buckets map[enforce.Key]*bucket
	// ring is for the sweep, because a map cannot be walked a few at a time.
	ring      []*bucket
	hand      int
	evictions int64
	held      []*enforce.State // of the current check; reused
	states    []enforce.State  // likewise
	credits   map[enforce.Key]pastCredit
	moves     moves
	lost      int64 // buckets that had moved

	reservations map[rules.TenantID]*reservations
	expired      int64 // reservations

	recordIDs    map[rules.TenantID]recordIDs
	maxRecordIDs int
}

type bucket struct {
	enforce.State
	key           enforce.Key
	at            int // index in ring; below 0 once removed
	*checkpointed     // nil unless the limit is long
}

func (b *bucket) isRemoved() bool { return b.at < 0 }

var (
	_ enforce.Buckets   = (*Store)(nil)
	_ enforce.Creditor  = (*Store)(nil)
	_ enforce.EditStore = (*Store)(nil)
	_ enforce.Reserver  = (*Store)(nil)
)

// New returns an empty store.
func New(options Options) *Store {
	s := &Store{
		clock: options.Clock, max: options.MaxBuckets, above: options.CheckpointAbove, isCopy: options.IsCopy,
		buckets: make(map[enforce.Key]*bucket),
		credits: map[enforce.Key]pastCredit{}, reservations: map[rules.TenantID]*reservations{},
		recordIDs: map[rules.TenantID]recordIDs{}, maxRecordIDs: enforce.MaxRecordIDs,
	}
	if s.max <= 0 {
		s.max = DefaultMaxBuckets
	}
	if s.clock == nil {
		s.clock = func() int64 { return time.Now().UnixMicro() }
	}
	return s
}

// Take implements enforce.Buckets without errors, even after the deadline of ctx, which another store may have used up.
func (s *Store) Take(_ context.Context, checks []enforce.BucketCheck) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The clock is read under the lock, because an earlier reading would look like a clock that went back, and earn
	// tokens twice.
	now := s.clock()
	for i := range checks {
		s.decide(&checks[i], now)
	}
	return nil
}

func (s *Store) decide(check *enforce.BucketCheck, now int64) {
	s.held = s.held[:0]
	s.states = slices.Grow(s.states[:0], len(check.Tiers))[:len(check.Tiers)]
	for i := range check.Tiers {
		s.held = append(s.held, s.bucket(check.Tiers[i].Key))
	}
	tenant := rules.TenantID(0)
	if check.Reserve != nil && len(check.Tiers) > 0 {
		tenant = check.Tiers[0].Key.Tenant
		open := s.reservationsOf(tenant, now)
		check.Exhausted = open != nil && open.Len() >= enforce.MaxReservations
		if check.Exhausted && check.Reserve.Optional {
			check.Exhausted = false
			check.Unreserve()
		}
	}
	check.Repeated = false
	if check.HasRecordID() && len(check.Tiers) > 0 {
		tenant = check.Tiers[0].Key.Tenant
		s.checkRecordID(check, tenant, now)
	}
	// TakeFrom writes old buckets before new ones are inserted: an insertion may sweep an idle bucket of this check.
	taken := check.TakeFrom(s.held, s.states, now)
	if check.Reserve != nil && check.Allowed && !check.Look && len(check.Tiers) > 0 {
		s.reserve(check, tenant, now)
	}
	if check.AddsRecordID() && len(check.Tiers) > 0 {
		s.recordIDs[tenant].add(check.RecordID, now)
	}
	for i, held := range s.held {
		switch {
		case !taken || !check.Takes(i):
		case held == nil:
			s.decided(s.insert(bounded(check.Tiers[i].Key), s.states[i], now))
		case s.isLong(held.Limit):
			s.decided(s.buckets[bounded(check.Tiers[i].Key)])
		}
	}
}

// Credit implements enforce.Creditor without errors.
func (s *Store) Credit(
	_ context.Context, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after = s.credit(key, limit, amount, s.clock())
	return before, after, nil
}

func (s *Store) credit(key enforce.Key, limit enforce.Limit, amount enforce.Tokens, now int64) (before,
	after enforce.Bucket,
) {
	held := s.bucket(key)
	var state enforce.State
	if held == nil {
		state = enforce.NewState(limit, now)
	} else {
		state = *held
		state.Advance(limit, 0, now)
	}
	before = state.View()
	credited := state
	credited.Credit(amount)
	switch {
	case held != nil:
		*held = credited
		s.decided(s.buckets[bounded(key)])
	case credited != state:
		s.decided(s.insert(bounded(key), credited, now))
	}
	return before, credited.View()
}

// ApplyEdits implements enforce.EditStore, and fails only with ctx.
func (s *Store) ApplyEdits(ctx context.Context, edits []enforce.Edit) error {
	edited := make(map[enforce.Key]*enforce.Edit, len(edits)) // by keys without a subject
	for i := range edits {
		edited[enforce.Key{Tenant: edits[i].Tenant, Rule: edits[i].Rule}] = &edits[i]
	}
	for b, now := range s.all {
		if ctx.Err() != nil {
			return fmt.Errorf("apply edits to buckets in memory: %w", context.Cause(ctx))
		}
		edit := edited[enforce.Key{Tenant: b.key.Tenant, Rule: b.key.Rule}]
		if edit == nil {
			continue
		}
		if limit, ok := edit.LimitOf(b.key.Subject, b.key.IsHashed()); ok {
			if state := b.State; state.Advance(limit, edit.ReadAt, now) {
				b.State = state
				if !s.isCopy { // else every process would write all that it knows, erased users too
					s.note(b)
				}
			}
		}
	}
	return nil
}

// visitedAtOnce buckets hold the lock for about 50 µs.
const visitedAtOnce = 500

func (s *Store) all(visit func(b *bucket, now int64) bool) {
	// Backwards, because the last bucket, already visited, replaces a removed one.
	for from, goesOn := math.MaxInt, true; from > 0 && goesOn; {
		from, goesOn = s.some(from, visit)
	}
}

func (s *Store) some(from int, visit func(b *bucket, now int64) bool) (next int, goesOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from = min(from, len(s.ring))
	// The clock is read under the lock, because an earlier reading would look like a clock that went back, and earn
	// tokens twice.
	now := s.clock()
	for range min(visitedAtOnce, from) {
		from--
		if !visit(s.ring[from], now) {
			return from, false
		}
	}
	return from, true
}

func (s *Store) bucket(key enforce.Key) *enforce.State { return s.bucketAt(bounded(key)) }

func (s *Store) bucketAt(bounded enforce.Key) *enforce.State {
	if b := s.buckets[bounded]; b != nil {
		return &b.State
	}
	return nil
}

func bounded(key enforce.Key) enforce.Key { return key.Bounded() }

// Len counts the buckets.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ring)
}

// Evictions counts buckets dropped before they were full; if it grows, callers may exceed limits, and MaxBuckets
// should.
func (s *Store) Evictions() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evictions
}

func (s *Store) insert(key enforce.Key, state enforce.State, now int64) *bucket {
	s.sweep(now)
	if len(s.ring) >= s.max {
		s.evict(now)
	}
	// The subject would keep a large request alive.
	key.Subject = strings.Clone(key.Subject)
	b := &bucket{State: state, key: key, at: len(s.ring)}
	s.buckets[key] = b
	s.ring = append(s.ring, b)
	return b
}

func (s *Store) sweep(now int64) {
	for range min(swept, len(s.ring)) {
		if b := s.next(); b.fullIn(now) <= -slack && !b.hasMoved() {
			s.remove(b)
		}
	}
}

func (s *Store) evict(now int64) {
	soonest := s.next()
	for range min(sample, len(s.ring)) - 1 {
		if b := s.next(); s.goesBefore(b, soonest, now) {
			soonest = b
		}
	}
	if soonest.fullIn(now) > 0 {
		s.evictions++
	}
	if soonest.hasMoved() {
		s.lost++
	}
	s.remove(soonest)
}

// A copy can ask the database for a checkpointed bucket, so it keeps those that wait to be written, of busy tenants
// first.
func (s *Store) goesBefore(a, b *bucket, now int64) bool {
	sooner := cmp.Compare(a.fullIn(now), b.fullIn(now))
	if s.isCopy || sooner == 0 { // windows end together
		if a.hasMoved() != b.hasMoved() {
			return b.hasMoved()
		}
		if a.hasMoved() && a.key.Tenant != b.key.Tenant {
			return len(s.moves.of[a.key.Tenant]) > len(s.moves.of[b.key.Tenant])
		}
	}
	return sooner < 0
}

func (s *Store) next() *bucket {
	if s.hand >= len(s.ring) {
		s.hand = 0
	}
	b := s.ring[s.hand]
	s.hand++
	return b
}

func (s *Store) remove(b *bucket) {
	last := len(s.ring) - 1
	s.ring[b.at] = s.ring[last]
	s.ring[b.at].at = b.at
	s.ring[last] = nil
	s.ring = s.ring[:last]
	delete(s.buckets, b.key)
	b.at = -1
}

// A clock that went back makes fullIn longer, so nothing is dropped too early.
func (b *bucket) fullIn(now int64) time.Duration {
	return b.TimeToFull() - time.Duration(now-b.Stamp)*time.Microsecond
}
