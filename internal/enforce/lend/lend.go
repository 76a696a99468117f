// Package lend is the arithmetic of a process that leases tokens of a bucket for about a second: how many it wants,
// when it asks, and its reports. The server's processes (internal/enforce/lease) and clients' handles (client) both use
// it. Clients import the package, so it uses the standard library alone.
//
// Tokens end on the monotonic or the wall clock, whichever is first, because the monotonic clock may stand still while
// a machine is suspended, and the wall clock may be set back.
//
// A report is never repeated, because the store may have counted it. If it was lost, the store counts too much as lent
// until it forgets the time slot, and admits less.
package lend

import "time"

const (
	// Life is how long lent tokens can be spent after the request, on the requesting process's clock.
	Life = time.Second
	// SlotGuard is how long after its end the store forgets a time slot, because owners' clocks may run slower.
	SlotGuard = 250 * time.Millisecond
	// MaxSlots caps the time slots that the store has not forgotten.
	MaxSlots = 6
	// clockDrift: the clocks here may run slower than the store's by 1/clockDrift.
	clockDrift = 1000
)

// OnStoresClock shortens a duration so that it ends here before it ends on the store's clock.
func OnStoresClock(d time.Duration) time.Duration { return d - d/clockDrift }

// Instant is one reading of the monotonic and the wall clock, in nanoseconds.
type Instant struct{ Mono, Wall int64 }

// Clock returns a clock that reads this machine's.
func Clock() func() Instant {
	start := time.Now()
	return func() Instant {
		now := time.Now()
		return Instant{Mono: int64(now.Sub(start)), Wall: now.UnixNano()}
	}
}

// Plus returns the instant after a duration on both clocks.
func (i Instant) Plus(d time.Duration) Instant { return Instant{i.Mono + int64(d), i.Wall + int64(d)} }

// IsBefore reports whether both clocks are before a time.
func (i Instant) IsBefore(other Instant) bool { return i.Mono < other.Mono && i.Wall < other.Wall }

// Apart returns by how much the two clocks moved apart since an earlier reading, and whether that is too much to trust
// either, because the machine was suspended or its clock was set. An owner then forfeits everything. Less than
// SlotGuard is harmless, because the store forgets a time slot only that long after its end.
func (i Instant) Apart(earlier Instant) (by time.Duration, tooFar bool) {
	by = time.Duration((i.Wall - earlier.Wall) - (i.Mono - earlier.Mono))
	return by, by.Abs() > SlotGuard
}

// Limit is a bucket's limit as a lease owner knows it.
type Limit struct {
	Rate  float64 // tokens per second, above 0
	Burst int64   // tokens
	Since int64   // when the limit came into force, in microseconds; of two limits the later is in force
}

// Ask is a lease owner's report and request.
type Ask struct {
	// Epoch is the epoch of Returns and Presence.
	Epoch int64
	// Returns are the tokens spent and given back since the last request, by time slot.
	Returns []Return
	// Presence is the time slot of the owner's last grant; 0 for none, or if the answer was lost.
	Presence int64
	// Held: the owner's tokens, including those of checks in progress. Need: the tokens that checks in progress need in
	// all. Want: the tokens that the owner would like in all.
	Held, Need, Want Tokens
	// Since is the time since the owner's last request, in microseconds; 0 for the first.
	Since int64
}

// Return reports lent tokens of one time slot as spent or given back.
type Return struct {
	Slot        int64
	Spent, Back Tokens
}

// Grant is the answer to an Ask.
type Grant struct {
	// Amount is the amount lent, and can be spent until Life after the request was sent.
	Amount Tokens
	// Slot and Epoch name the grant in later requests.
	Slot, Epoch int64
	// Holders is the number of processes that hold tokens of the bucket, this one included.
	Holders int64
	Limit   Limit // in force
	// Pause is how long to leave the empty bucket alone; see Pause.
	Pause time.Duration
}

// longestPause caps a pause against a faulty server.
const longestPause = 100 * time.Millisecond

// Pause returns how long an owner leaves a bucket alone after its request: 0 if nothing was refused and the level is
// two tokens or more for each owner, else the time in which the bucket earns a token for each.
func Pause(level Tokens, holders int64, rate float64, refused bool) time.Duration {
	n := float64(max(1, holders))
	if !refused && float64(level)/2/n >= float64(Token) {
		return 0
	}
	return min(time.Duration(n/rate*float64(time.Second)), longestPause)
}
