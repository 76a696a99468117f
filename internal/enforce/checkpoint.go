package enforce

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// A Checkpoint is a bucket's state as a table of the database keeps it, so that a long limit survives the loss of its
// store. Lent tokens count as spent there.
type Checkpoint struct {
	Key   Key
	State State
	// Stamp is when the state was known; of two rows the later counts.
	Stamp int64
}

// A Learner keeps the newest states of buckets that another store has decided.
type Learner interface {
	// LearnChecks learns from the answered checks of a Take with an error.
	LearnChecks(checks []BucketCheck, err error)
	// Learn learns the state of a bucket by its bounded key. Older states than the known one are ignored.
	Learn(key Key, state State)
}

// Recollection restores the process's own buckets of long limits while the shared store is away.
type Recollection interface {
	// Recollect makes the own buckets of some tiers begin where the shared ones are about, within the budget of the
	// store, and returns the tiers with a long limit for which that could not be found out.
	Recollect(tiers []Tier) (unknown []Tier)
}

// Recovery knows the states of buckets of long limits that the shared store may have lost.
type Recovery interface {
	// Recover returns the newest known states of some buckets of a tenant, within the budget of the store. Keys are
	// Bounded. The Stamp of a bucket that nobody has used is 0. isNew: no bucket of the tenant was known at its first
	// look-up in the era. The era began at era, in microseconds since the Unix epoch.
	Recover(keys []Key, era int64) (known []Checkpoint, isNew bool, err error)
}

// IsLong reports whether buckets of a limit have checkpoints: they take at least a time to refill, and are no list. A
// time of 0 means that none has.
func IsLong(limit Limit, above time.Duration) bool {
	return above > 0 && limit.Kind <= rules.KindSlidingWindow && limit.TimeToFull() >= above
}

// checkpointShare: a bucket is written when its state has moved by 1/checkpointShare of its limit.
const checkpointShare = 50

// HasMoved reports whether an advanced bucket differs from what its last checkpoint would have become by 2 % of the
// limit or more. A bucket without one would be full; the Stamp of last is then 0.
//
// A restore knows only the rule's latest limit, so a bucket that an edit moved by 2 % is also written, before a second
// edit hides the first.
func (s *State) HasMoved(last *State) bool {
	would := NewState(s.Limit, s.Stamp)
	if last.Stamp > 0 {
		would = *last
		would.Advance(s.Limit, 0, s.Stamp)
	}
	if s.differs(&would) {
		return true
	}
	if last.Limit.Burst == 0 || last.Limit.SameAmounts(s.Limit) {
		return false
	}
	unedited := NewState(last.Limit, s.Stamp)
	if last.Stamp > 0 {
		unedited = *last
		unedited.Advance(last.Limit, 0, s.Stamp)
	}
	return s.differs(&unedited)
}

// differs reports whether a bucket differs from another one by 2 % of the other one's limit or more.
func (s *State) differs(other *State) bool {
	by := distance(other.Level.Micros, s.Level.Micros)
	if s.Limit.Kind == rules.KindSlidingWindow { // else Former is a time
		by = max(by, distance(other.Former, s.Former))
	}
	return by > 0 && by >= capacity(other.Limit)/checkpointShare
}

func distance(a, b Tokens) Tokens { return max(a-b, b-a) }

// Lower brings the bucket to now, and lowers it to another state of the same bucket that has not seen all of its takes.
func (s *State) Lower(other State, now int64) {
	s.Advance(other.Limit, 0, now)
	other.Advance(s.Limit, 0, now)
	if other.Level.Micros < s.Level.Micros {
		s.Level = other.Level
	}
	s.Former = max(s.Former, other.Former)
}

// State returns the bucket of an answered tier as a store keeps it, without what is lent. ok is false for lists.
func (t *Tier) State() (state State, ok bool) {
	if t.Bucket.Limit.Kind > rules.KindSlidingWindow {
		return State{}, false
	}
	state = State{Bucket: t.Bucket, Former: t.Former}
	if t.Former > 0 && t.Bucket.Limit.Kind == rules.KindSlidingWindow {
		_, end := t.Bucket.Limit.WindowAt(t.Bucket.Stamp)
		state.Level.Micros += weighed(t.Bucket.Limit, t.Former, end-t.Bucket.Stamp)
	}
	return state, true
}

// State returns the bucket of a grant, without what is lent. A grant has no time; its slot is at most a slot's length
// behind.
func (g *Grant) State() State {
	stamp := g.Slot*slotLength - LeaseLife.Microseconds()
	return State{Bucket: Bucket{Level: g.Level, Stamp: stamp, Limit: g.Limit}}
}

// LearnCredit teaches the answer of a credit or a reset, which must reach the checkpoint even of a bucket that the
// learner does not hold.
func LearnCredit(learner Learner, key Key, before, after Bucket) {
	isPart := after.Limit.Kind == rules.KindSlidingWindow && after.Level.Micros < capacity(after.Limit)
	if learner == nil || after.Limit.Kind > rules.KindSlidingWindow || isPart {
		return // an answer does not have the parts of a sliding window
	}
	learnChange(learner, key.Bounded(), State{Bucket: before}, State{Bucket: after})
}

// LearnSettled teaches what a settlement took or gave back.
func LearnSettled(learner Learner, settled *Settled) {
	if learner == nil {
		return
	}
	for i := range settled.Buckets {
		b := &settled.Buckets[i]
		before := b.State
		before.Level.Micros += b.Taken
		learnChange(learner, b.Key, before, b.State)
	}
}

// learnChange teaches both states, because a learner writes what has moved, and may not hold the bucket.
func learnChange(learner Learner, key Key, before, after State) {
	before.Stamp-- // of two states at one time the lower counts
	learner.Learn(key, before)
	learner.Learn(key, after)
}
