// Package lend is the arithmetic of a process that leases tokens for about a second: demand, requests and reports.
// Servers (internal/enforce/lease) and clients' handles (client) use it, so it imports the standard library alone.
//
// Tokens end on the monotonic or wall clock, whichever is first: one may stand still during suspension, the other be
// set back.
package lend

import "time"

const (
	// Life is how long lent tokens can be spent after the request, on the requester's clock.
	Life = time.Second
	// SlotGuard is how long after its end the store forgets a time slot: owners' clocks may run slower.
	SlotGuard = 250 * time.Millisecond
	// MaxSlots caps a bucket's time slots.
	MaxSlots = 6
	// clockDrift: clocks here may be slower than the store's by 1/clockDrift.
	clockDrift = 1000
)

// OnStoresClock shortens d to end here before it ends on the store's clock.
func OnStoresClock(d time.Duration) time.Duration { return d - d/clockDrift }

// Instant is a reading of both clocks, in nanoseconds.
type Instant struct{ Mono, Wall int64 }

// Clock reads this machine's clocks.
func Clock() func() Instant {
	start := time.Now()
	return func() Instant {
		now := time.Now()
		return Instant{Mono: int64(now.Sub(start)), Wall: now.UnixNano()}
	}
}

// Plus adds to both clocks.
func (i Instant) Plus(d time.Duration) Instant { return Instant{i.Mono + int64(d), i.Wall + int64(d)} }

// IsBefore requires both clocks to be before.
func (i Instant) IsBefore(other Instant) bool { return i.Mono < other.Mono && i.Wall < other.Wall }

// Apart returns the clocks' drift since an earlier reading; if tooFar, after suspension or setting, owners forfeit
// everything. Less than SlotGuard is harmless, because the store forgets a slot only that long after its end.
func (i Instant) Apart(earlier Instant) (by time.Duration, tooFar bool) {
	by = time.Duration((i.Wall - earlier.Wall) - (i.Mono - earlier.Mono))
	return by, by.Abs() > SlotGuard
}

// Limit is as a lease owner knows it.
type Limit struct {
	Rate  float64 // tokens per second, above 0
	Burst int64   // tokens
	Since int64   // when the limit came into force, in microseconds; of two limits the later is in force
}

// Ask is a lease owner's report and request.
type Ask struct {
	Epoch   int64
	Returns []Return
	// Presence is the last grant's time slot; 0 for none or a lost answer.
	Presence int64
	// Held counts the owner's tokens, including those of checks in progress, Need what these need in all, Want the
	// wish.
	Held, Need, Want Tokens
	// Since the last request, in microseconds; 0 for the first.
	Since int64
}

// Return reports lent tokens of a time slot.
type Return struct {
	Slot        int64
	Spent, Back Tokens
}

// Grant is the answer to an Ask.
type Grant struct {
	Amount      Tokens
	Slot, Epoch int64
	Holders     int64
	Limit       Limit // in force
	Pause       time.Duration
}

const longestPause = 100 * time.Millisecond

// Pause returns how long to leave a bucket alone: until it earns a token for each owner, or 0 if nothing was refused
// and two are left for each.
func Pause(level Tokens, holders int64, rate float64, refused bool) time.Duration {
	n := float64(max(1, holders))
	if !refused && float64(level)/2/n >= float64(Token) {
		return 0
	}
	return min(time.Duration(n/rate*float64(time.Second)), longestPause)
}
