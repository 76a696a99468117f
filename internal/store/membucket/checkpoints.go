package membucket

import (
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

type checkpointed struct {
	last  enforce.State // as the last checkpoint has it; its Stamp is 0 without one, and its limit the first
	phase phase
	// isGuess: decided here without the shared store, from a state known at a time (µs since the Unix epoch).
	isGuess bool
	knownAt int64
	askedAt int64 // when Unknown named it last, or a Restore answered
}

// freshFor: a copy is not asked for again; checkpoints are written each second.
const freshFor = 5 * time.Second

type phase uint8

const (
	still   phase = iota // the state is about that of the last checkpoint
	moved                // it waits to be written
	writing              // it is being written
)

func (b *bucket) hasMoved() bool { return b.checkpointed != nil && b.phase == moved }

type moves struct {
	of    map[rules.TenantID][]*bucket
	turns []rules.TenantID
	count int
}

func (m *moves) push(b *bucket) {
	if m.of == nil {
		m.of = map[rules.TenantID][]*bucket{}
	}
	line := m.of[b.key.Tenant]
	if len(line) == 0 {
		m.turns = append(m.turns, b.key.Tenant)
	}
	m.of[b.key.Tenant] = append(line, b)
	m.count++
}

func (m *moves) pop() *bucket {
	tenant := m.turns[0]
	m.turns = m.turns[1:]
	line := m.of[tenant]
	b := line[0]
	line[0] = nil
	if line = line[1:]; len(line) > 0 {
		m.of[tenant] = line
		m.turns = append(m.turns, tenant)
	} else {
		delete(m.of, tenant)
	}
	m.count--
	return b
}

func (s *Store) isLong(limit enforce.Limit) bool { return enforce.IsLong(limit, s.above) }

func (s *Store) note(b *bucket) {
	if !s.isLong(b.Limit) {
		return
	}
	if b.checkpointed == nil {
		b.checkpointed = &checkpointed{}
	}
	if b.last.Limit.Burst == 0 {
		b.last.Limit = b.Limit
	}
	if b.phase == still && b.HasMoved(&b.last) {
		b.phase = moved
		s.moves.push(b)
	}
}

func (s *Store) decided(b *bucket) {
	if b == nil || !s.isLong(b.Limit) {
		return
	}
	if s.isCopy {
		if b.checkpointed == nil {
			b.checkpointed = &checkpointed{knownAt: b.Stamp}
		}
		b.isGuess = true
	}
	s.note(b)
}

// Moved returns up to most buckets that moved by 2 % of their limits, in turns of tenants. Wrote must get all of them
// before the next call.
func (s *Store) Moved(most int) (checkpoints []enforce.Checkpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.moves.count > 0 && len(checkpoints) < most {
		b := s.moves.pop()
		if b.isRemoved() || !b.hasMoved() {
			continue
		}
		b.phase = writing
		state := b.State
		state.Entries = "" // lent tokens count as spent
		checkpoints = append(checkpoints, enforce.Checkpoint{Key: b.key, State: state, Stamp: s.knownAt(b)})
	}
	return checkpoints
}

// knownAt: this store's edits and decisions advance a copy, but others may know better since.
func (s *Store) knownAt(b *bucket) int64 {
	if b.checkpointed != nil && (s.isCopy || b.isGuess) {
		return b.checkpointed.knownAt
	}
	return b.Stamp
}

// Wrote ends a Moved: written, or due again.
func (s *Store) Wrote(checkpoints []enforce.Checkpoint, written bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range checkpoints {
		b := s.buckets[checkpoints[i].Key]
		if b == nil || b.checkpointed == nil || b.phase != writing {
			continue
		}
		if written {
			b.last = checkpoints[i].State
		}
		b.phase = still
		s.note(b)
	}
}

// MovedBuckets counts buckets that wait for a checkpoint.
func (s *Store) MovedBuckets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moves.count
}

// Lost counts buckets dropped before their checkpoint, because the memory was full.
func (s *Store) Lost() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// LearnChecks implements enforce.Learner.
func (s *Store) LearnChecks(checks []enforce.BucketCheck, err error) {
	for i := range checks {
		check := &checks[i]
		if err != nil && !check.Answered {
			continue
		}
		for j := range check.Tiers {
			tier := &check.Tiers[j]
			if !s.isLong(tier.Bucket.Limit) {
				continue
			}
			if state, ok := tier.State(); ok {
				s.Learn(tier.Key.Bounded(), state)
			}
		}
	}
}

// Learn implements enforce.Learner.
func (s *Store) Learn(key enforce.Key, state enforce.State) {
	if !s.isLong(state.Limit) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[key]
	switch {
	case b == nil:
		if state.TimeToFull() == 0 {
			return
		}
		b = s.insert(key, state, s.clock())
	case state.Stamp > b.Stamp, state.Stamp == b.Stamp && state.Level.Micros < b.Level.Micros:
		b.State = state
	default:
		return
	}
	s.note(b)
	b.isGuess, b.knownAt = false, state.Stamp
}

// Unknown implements checkpoint.Known: long limits' buckets not asked for lately, under their keys here; a missing one
// is full, with a Stamp of 0.
func (s *Store) Unknown(tiers []enforce.Tier) (unknown []enforce.Checkpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	isFresh := func(at int64) bool { return max(now-at, at-now) < freshFor.Microseconds() }
	for i := range tiers {
		if !s.isLong(tiers[i].Limit) {
			continue
		}
		known := enforce.Checkpoint{Key: bounded(tiers[i].Key)}
		switch b := s.buckets[known.Key]; {
		case b == nil:
			known.State = enforce.NewState(tiers[i].Limit, now)
		case isFresh(s.knownAt(b)), b.checkpointed != nil && isFresh(b.askedAt):
			continue
		default:
			known.State, known.Stamp = b.State, s.knownAt(b)
			if b.checkpointed == nil {
				b.checkpointed = &checkpointed{knownAt: known.Stamp}
			}
			b.askedAt = now // others go on with this state meanwhile
		}
		known.Key.Subject = strings.Clone(known.Key.Subject) // it outlives the request
		unknown = append(unknown, known)
	}
	return unknown
}

// Restore implements checkpoint.Known and Memory; a later state stays. A guess is never raised, because checkpoints
// lack the takes of this process. Without a checkpoint (Stamp 0) a new bucket is full until somebody knows more.
func (s *Store) Restore(checkpoint enforce.Checkpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	b := s.buckets[checkpoint.Key]
	isNew := b == nil
	if isNew {
		b = s.insert(checkpoint.Key, checkpoint.State, now)
	}
	knownAt := s.knownAt(b)
	if b.checkpointed == nil {
		b.checkpointed = &checkpointed{knownAt: knownAt}
	}
	b.askedAt = now
	switch {
	case isNew && checkpoint.Stamp == 0:
		b.State, b.last, b.isGuess, b.knownAt = checkpoint.State, checkpoint.State, true, 1
	case !isNew && checkpoint.Stamp <= knownAt:
	case b.isGuess:
		b.Lower(checkpoint.State, now)
		b.last, b.knownAt = checkpoint.State, checkpoint.Stamp
		s.note(b)
	default:
		b.State, b.last, b.knownAt = checkpoint.State, checkpoint.State, checkpoint.Stamp
	}
}

// Newest implements checkpoint.Known, without lent tokens.
func (s *Store) Newest(key enforce.Key) (known enforce.Checkpoint, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[key]
	if b == nil || b.checkpointed == nil {
		return known, false
	}
	known = enforce.Checkpoint{Key: key, State: b.State, Stamp: s.knownAt(b)}
	known.State.Entries = ""
	return known, true
}

// HasKnown implements checkpoint.Known, and reads all buckets.
func (s *Store) HasKnown(before map[rules.TenantID]int64) map[rules.TenantID]bool {
	has := map[rules.TenantID]bool{}
	for b := range s.all {
		if b.checkpointed != nil && s.knownAt(b) < before[b.key.Tenant] {
			has[b.key.Tenant] = true
		}
	}
	return has
}

// Forget keeps a full bucket's state from becoming a checkpoint, because its user is erased.
func (s *Store) Forget(key enforce.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[bounded(key)]; b != nil {
		b.checkpointed = nil
	}
}
