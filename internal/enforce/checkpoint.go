package enforce

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Checkpoint is a bucket's state in the database, where a long limit survives the loss of its store. Lent tokens count
// as spent there.
type Checkpoint struct {
	Key   Key
	State State
	// Stamp is when the state was known; of two rows the later counts.
	Stamp int64
}

// Learner keeps the newest states of buckets that another store has decided.
type Learner interface {
	// LearnChecks learns from the answered checks of a Take that returned err.
	LearnChecks(checks []BucketCheck, err error)
	// Learn learns a state by its bounded key, unless a newer one is known.
	Learn(key Key, state State)
}

// LocalRestorer restores the process's own buckets of long limits while the shared store is away.
type LocalRestorer interface {
	// RestoreLocal lets own buckets begin near the shared ones, within the store's budget, and returns the tiers where
	// that failed.
	RestoreLocal(tiers []Tier) (unknown []Tier)
}

// Recovery finds lost buckets of long limits.
type Recovery interface {
	// Recover returns the newest known states by Bounded keys of one tenant, within the store's budget. Stamp is 0 if
	// unused. isNew: the tenant had no bucket when the era began, at era in µs since the Unix epoch.
	Recover(keys []Key, era int64) (known []Checkpoint, isNew bool, err error)
}

// IsLong reports whether buckets of a limit have checkpoints, because they take that long to refill; 0 means never.
func IsLong(limit Limit, above time.Duration) bool {
	return above > 0 && limit.Kind <= rules.KindSlidingWindow && limit.TimeToFull() >= above
}

const checkpointShare = 50

// HasMoved reports whether an advanced bucket differs by 2 % of its limit from what its last checkpoint predicts. A
// missing checkpoint (Stamp 0) predicts a full bucket.
//
// A restore knows only the latest limit, so a bucket moved by an edit is written before a second edit hides the first.
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

func (s *State) differs(other *State) bool {
	by := distance(other.Level.Micros, s.Level.Micros)
	if s.Limit.Kind == rules.KindSlidingWindow { // else Former is a time
		by = max(by, distance(other.Former, s.Former))
	}
	return by > 0 && by >= capacity(other.Limit)/checkpointShare
}

func distance(a, b Tokens) Tokens { return max(a-b, b-a) }

// Lower brings the bucket to now, and down to a state that has not seen all of its takes.
func (s *State) Lower(other State, now int64) {
	s.Advance(other.Limit, 0, now)
	other.Advance(s.Limit, 0, now)
	if other.Level.Micros < s.Level.Micros {
		s.Level = other.Level
	}
	s.Former = max(s.Former, other.Former)
}

// State returns the stored bucket of an answered tier, without lent tokens; ok is false for lists.
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

// State returns the bucket of a grant, without lent tokens, as of its slot.
func (g *Grant) State() State {
	stamp := g.Slot*slotLength - LeaseLife.Microseconds()
	return State{Bucket: Bucket{Level: g.Level, Stamp: stamp, Limit: g.Limit}}
}

// LearnCredit learns a credit or reset, even of a bucket that the learner does not hold.
func LearnCredit(learner Learner, key Key, before, after Bucket) {
	isPart := after.Limit.Kind == rules.KindSlidingWindow && after.Level.Micros < capacity(after.Limit)
	if learner == nil || after.Limit.Kind > rules.KindSlidingWindow || isPart {
		return // an answer does not have the parts of a sliding window
	}
	learnChange(learner, key.Bounded(), State{Bucket: before}, State{Bucket: after})
}

// LearnSettled learns what a settlement took or gave back.
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

// learnChange learns both states, because a learner that does not hold the bucket writes only what moved.
func learnChange(learner Learner, key Key, before, after State) {
	before.Stamp-- // of two states at one time the lower counts
	learner.Learn(key, before)
	learner.Learn(key, after)
}
