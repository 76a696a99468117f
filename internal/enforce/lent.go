package enforce

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

// A process can lease tokens of a busy bucket ahead of demand and spend them without asking the store. Lent tokens
// occupy the burst: the bucket fills up only to burst − out, where out is the amount lent and not yet reported as
// spent or given back. The level and all lent tokens together therefore earn like one bucket, and no interval admits
// more than burst + rate × time, whichever process crashes.
//
// A bucket does not know its lease owners. It keeps a few time slots with the amount whose lease ends in each. Once a
// slot and the guard after it have passed, the rest of the slot counts as spent, because its owners must have stopped
// before.
const (
	// LeaseLife is how long leased tokens can be spent after the request, on the requesting process's clock.
	LeaseLife = lend.Life
	// SlotLength is the length of a time slot. The slot is forgotten SlotGuard after its end, because owners' clocks
	// may run slower.
	SlotLength = 250 * time.Millisecond
	SlotGuard  = lend.SlotGuard
	// MaxSlots caps the time slots that are not forgotten.
	MaxSlots = lend.MaxSlots
	// LeaseHorizon caps the time between two requests of an owner that counts for its share of the rate.
	LeaseHorizon = time.Second

	slotLength, slotGuard = int64(SlotLength / time.Microsecond), int64(SlotGuard / time.Microsecond)
)

// CanLease reports whether tokens of a limit's buckets can be lent.
func CanLease(limit Limit) bool { return limit.Kind == rules.KindTokenBucket && limit.Interval == 0 }

// Lender is a store whose buckets lend tokens.
type Lender interface {
	// Lease answers the lease requests of one tenant, with distinct keys, in one round trip; see State.Lease. A bucket
	// whose limit in force cannot be lent refuses. An unused bucket that lends nothing is not stored.
	//
	// An error means that the store gave no answer in time for the leases that are not marked Answered. Their reports
	// may have been counted and must not be repeated.
	Lease(ctx context.Context, leases []Lease) error
}

// Lease is a lease owner's request to one bucket, with the answer.
type Lease struct {
	Key   Key
	Limit Limit // as the caller knows it
	Ask   Ask
	// Grant is the answer, if Answered.
	Grant    Grant
	Answered bool
}

// Ask is a lease owner's report and request.
type Ask = lend.Ask

// Return reports lent tokens of one time slot as spent or given back.
type Return = lend.Return

// Grant is a bucket's answer to an Ask.
type Grant struct {
	// Amount is the amount lent, and can be spent until LeaseLife after the request was sent.
	Amount Tokens
	// Slot and Epoch name the lease in later asks.
	Slot, Epoch int64
	// Level and Out are the bucket's. Holders counts the processes that hold its tokens, this one included.
	Level   Level
	Out     Tokens
	Holders int64
	Limit   Limit // in force
	// Refused: the bucket lacked Need, and nothing is lent. Wait is how long until the bucket holds it, in
	// microseconds; 0 if it never does.
	Refused bool
	Wait    int64
}

// Pause is how long lease owners leave an empty bucket alone; see lend.Pause.
func (g *Grant) Pause() time.Duration {
	return lend.Pause(g.Level.Micros, g.Holders, g.Limit.Rate, g.Refused)
}

// slots are the time slots of a token bucket, as State.Entries keeps them:
//
//	epoch in µs (double); then {slot (double), out in millionths (double), holders (32 bits)}, the oldest first
//
// The epoch is when the list was made or the clock last stepped back. Slot numbers of another epoch mean other tokens.
type slots struct {
	epoch int64
	n     int
	all   [MaxSlots]slot
}

type slot struct {
	index   int64 // the slot ends at (index + 1) × SlotLength
	out     Tokens
	holders int64
}

const (
	epochBytes = 8
	slotBytes  = 8 + 8 + 4
)

func (t *slot) forgotten() int64 { return (t.index+1)*slotLength + slotGuard }

func (s *State) lent() (l slots) {
	if s.Limit.Kind != rules.KindTokenBucket || s.Entries == "" {
		return l
	}
	l.epoch = timeAt(s.Entries, 0)
	for at := epochBytes; at < len(s.Entries) && l.n < MaxSlots; at += slotBytes {
		e := s.Entries[at:]
		l.all[l.n] = slot{
			timeAt(e, 0), Tokens(timeAt(e, 8)),
			int64(uint32(e[16]) | uint32(e[17])<<8 | uint32(e[18])<<16 | uint32(e[19])<<24),
		}
		l.n++
	}
	return l
}

func (s *State) keep(l *slots) {
	if l.n == 0 {
		s.Entries = ""
		return
	}
	b := appendTime(make([]byte, 0, epochBytes+l.n*slotBytes), l.epoch)
	for i := range l.n {
		t := &l.all[i]
		b = appendTime(appendTime(b, t.index), int64(t.out))
		b = binary.LittleEndian.AppendUint32(b, uint32(t.holders))
	}
	s.Entries = string(b)
}

func (l *slots) out() (sum Tokens) {
	for i := range l.n {
		sum += l.all[i].out
	}
	return sum
}

func (l *slots) holders() (sum int64) {
	for i := range l.n {
		sum += l.all[i].holders
	}
	return sum
}

func (l *slots) find(index int64) *slot {
	for i := range l.n {
		if l.all[i].index == index {
			return &l.all[i]
		}
	}
	return nil
}

func (l *slots) forget() {
	copy(l.all[:], l.all[1:l.n])
	l.n--
}

func slotOf(now int64) int64 { return (now + LeaseLife.Microseconds()) / slotLength }

// room returns the most that the bucket can hold beside its lent tokens, and is 0 if the burst was cut below them.
func room(limit Limit, l *slots) Tokens { return max(0, capacity(limit)-l.out()) }

func (s *State) room() Tokens {
	l := s.lent()
	return room(s.Limit, &l)
}

// Out returns the amount lent.
func (s *State) Out() Tokens {
	l := s.lent()
	return l.out()
}

// Holders returns how many processes hold lent tokens. A process that is gone counts until its time slot is forgotten.
func (s *State) Holders() int64 {
	l := s.lent()
	if l.out() == 0 {
		return 0
	}
	return l.holders()
}

// Epoch names the bucket's time slots; 0 if it has lent nothing.
func (s *State) Epoch() int64 {
	l := s.lent()
	return l.epoch
}

// earnBeside earns like a token bucket, but only up to room, and forgets time slots on the way.
func (s *State) earnBeside(to int64) {
	l := s.lent()
	for now := s.Stamp; ; {
		until := to
		if l.n > 0 {
			until = min(to, max(now, l.all[0].forgotten()))
		}
		s.Level = s.Level.earnUpTo(s.ticks(until)-s.ticks(now), s.Limit.Rate, room(s.Limit, &l))
		now = until
		if l.n == 0 || l.all[0].forgotten() > to {
			break
		}
		l.forget()
	}
	s.keep(&l)
}

// ticks returns a time on the clock by which the bucket earns. A refill in steps is a continuous one by a clock that
// ticks once per interval.
func (s *State) ticks(at int64) int64 {
	if step := s.Limit.Interval; step > 0 {
		return at - at%step
	}
	return at
}

// stepBack moves all lent tokens into the latest time slot after the clock stepped back.
func (s *State) stepBack(now int64) {
	l := s.lent()
	if l.n == 0 {
		return
	}
	l.all[0] = slot{slotOf(now), l.out(), l.holders()}
	l.n, l.epoch = 1, now
	s.keep(&l)
}

// untilBeside returns after how many microseconds a bucket with lent tokens holds an amount of at most its burst.
func (s *State) untilBeside(amount Tokens) int64 {
	later := *s
	for {
		l := later.lent()
		wait := later.Stamp - s.Stamp
		if room(later.Limit, &l) >= amount {
			wait += int64(later.Bucket.until(amount, 0) / time.Microsecond)
			if l.n == 0 || s.Stamp+wait < l.all[0].forgotten() {
				return wait
			}
		}
		later.earnUntil(l.all[0].forgotten())
	}
}

// Lease counts an owner's report and answers its request. The state must be advanced.
//
// Reports of another epoch or of forgotten time slots are ignored. Returned tokens can be lent and taken again.
//
// A grant covers Need or is refused. Beyond Need it is the least of
//   - Want
//   - the owner's equal share of half the level or, if that is more, of what was earned since its last request
//   - half of the burst, less the amount that is lent
func (s *State) Lease(ask *Ask) Grant {
	if !CanLease(s.Limit) {
		return Grant{Level: s.View().Level, Holders: 1, Limit: s.Limit, Refused: true}
	}
	now, l := s.Stamp, s.lent()
	if l.n == 0 {
		l.epoch = now
	} else if ask.Epoch == l.epoch {
		s.takeBack(ask, &l)
	}
	g := Grant{Slot: slotOf(now), Epoch: l.epoch, Limit: s.Limit, Holders: l.holders() + 1}
	short := max(0, ask.Need-ask.Held)
	if g.Refused = !s.Level.Holds(short); !g.Refused {
		free := float64(s.Level.Micros - short)
		holders := float64(g.Holders)
		earned := float64(min(ask.Since, LeaseHorizon.Microseconds())) * s.Limit.Rate
		most := min(float64(ask.Want-max(ask.Need, ask.Held)), free,
			max(0.5*free/holders, earned/holders), 0.5*float64(capacity(s.Limit))-float64(l.out()+short))
		g.Amount = short + Tokens(math.Floor(max(0, most)))
		s.Level.Micros -= g.Amount
	}
	// An owner that gets nothing is also counted, so that the shares of others leave some for it.
	if g.Amount > 0 || ask.Want > 0 || ask.Need > 0 {
		l.lend(g.Slot, g.Amount)
	}
	s.keep(&l)
	g.Level, g.Out = s.Level, l.out()
	if g.Refused && short <= capacity(s.Limit) {
		g.Wait = s.untilBeside(short)
	}
	return g
}

func (s *State) takeBack(ask *Ask, l *slots) {
	var back Tokens
	for _, r := range ask.Returns {
		if t := l.find(r.Slot); t != nil {
			t.out -= min(max(0, r.Spent), t.out)
			given := min(max(0, r.Back), t.out)
			t.out -= given
			back += given
		}
	}
	if back > 0 {
		s.Level.Micros = min(room(s.Limit, l), s.Level.Micros+back)
	}
	if t := l.find(ask.Presence); t != nil && t.holders > 0 {
		t.holders--
	}
}

func (l *slots) lend(index int64, amount Tokens) {
	t := l.find(index)
	if t == nil {
		if l.n == MaxSlots { // cannot be: older ones are forgotten
			l.all[1].out += l.all[0].out
			l.all[1].holders += l.all[0].holders
			l.forget()
		}
		l.all[l.n] = slot{index: index}
		t = &l.all[l.n]
		l.n++
	}
	t.out += amount
	t.holders++
}
