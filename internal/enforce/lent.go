package enforce

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// A process can lease tokens of a busy bucket ahead of demand, and spend them without asking the store. Tokens that are lent
// out occupy the burst: the bucket fills up only to burst − out, where out is what is lent and not yet reported as spent or
// given back. So the sum of the level and of all tokens that processes hold earns like one bucket, and in no interval more
// than burst + rate × time is admitted, whoever crashes.
//
// A bucket does not know who holds its tokens. It keeps a few slots of time, each with what was lent to end in it. When a slot
// has ended, and the guard after it, what is still lent in it counts as spent: its holder must have stopped before.
const (
	// LeaseLife is how long leased tokens can be spent, on the clock of the process that asked, from when it asked.
	LeaseLife = time.Second
	// SlotLength is the length of a slot, and SlotGuard how much later it is forgotten: holders' clocks may run slower.
	SlotLength = 250 * time.Millisecond
	SlotGuard  = 250 * time.Millisecond
	// MaxSlots is how many slots have not been forgotten at one time.
	MaxSlots = 6
	// LeaseHorizon is the longest time between two asks of a holder over which it may earn its share of the rate.
	LeaseHorizon = time.Second

	slotLength, slotGuard = int64(SlotLength / time.Microsecond), int64(SlotGuard / time.Microsecond)
)

// CanLease reports whether tokens of a limit's buckets can be lent.
func CanLease(limit Limit) bool { return limit.Kind == rules.KindTokenBucket && limit.Interval == 0 }

// Lender is a store whose buckets lend tokens.
type Lender interface {
	// Lease answers the asks of leases of one tenant, whose keys are distinct, in one round trip. See State.Lease. A bucket
	// whose limit in force cannot be lent refuses. A bucket that nobody used, and that lends nothing, is not stored.
	//
	// An error means that the store could not answer in time, except for the leases that it marked Answered. The
	// reports of the others may have been counted, so they must not be repeated.
	Lease(ctx context.Context, leases []Lease) error
}

// Lease is what a holder asks of one bucket, and the answer.
type Lease struct {
	Key   Key
	Limit Limit // as the caller knows it
	Ask   Ask
	// Grant is the answer, if Answered.
	Grant    Grant
	Answered bool
}

// Ask is what a holder reports of a bucket and asks of it.
type Ask struct {
	// Epoch is that of Returns and Presence.
	Epoch int64
	// Returns are what was spent and is given back since the holder's last ask, by slot.
	Returns []Return
	// Presence is the slot of the holder's last grant; 0 for none, or if the answer was lost.
	Presence int64
	// Held is what the holder has, what it asks with undecided checks included. Need is what these checks lack unless they
	// find it in Held, and Want what the holder would like to have.
	Held, Need, Want Tokens
	// Since is how long ago the holder asked last, in microseconds; 0 if it never did.
	Since int64
	// Loan asks for tokens of checks that are being decided, and that are reported at once: the asker is no holder, and what it
	// wants is lent as far as the bucket has it, whatever the shares of holders.
	Loan bool
}

// Return is what became of tokens that were lent to end in a slot.
type Return struct {
	Slot        int64
	Spent, Back Tokens
}

// Grant is a bucket's answer to an Ask.
type Grant struct {
	// Amount is what is lent. It can be spent until LeaseLife after the ask was sent.
	Amount Tokens
	// Slot and Epoch name the lease in later asks.
	Slot, Epoch int64
	// Level and Out are the bucket's, and Holders how many hold tokens of it, this one included.
	Level   Level
	Out     Tokens
	Holders int64
	Limit   Limit // in force
	// Refused: the bucket lacked what was needed, and nothing is lent. Wait is until it holds that, in microseconds; 0 if
	// it never does.
	Refused bool
	Wait    int64
}

// slots is what a token bucket has lent, as State.Entries keeps it:
//
//	epoch in µs (double); then {slot (double), out in millionths (double), holders (32 bits)}, the oldest first
//
// The epoch is when the list was made or the clock last stepped back. Slots of another epoch have other tokens.
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

// forgotten returns when the slot is forgotten.
func (t *slot) forgotten() int64 { return (t.index+1)*slotLength + slotGuard }

// lent reads the slots of a token bucket.
func (s *State) lent() (l slots) {
	if s.Limit.Kind != rules.KindTokenBucket || s.Entries == "" {
		return l
	}
	l.epoch = timeAt(s.Entries, 0)
	for at := epochBytes; at < len(s.Entries) && l.n < MaxSlots; at += slotBytes {
		e := s.Entries[at:]
		l.all[l.n] = slot{timeAt(e, 0), Tokens(timeAt(e, 8)), int64(uint32(e[16]) | uint32(e[17])<<8 | uint32(e[18])<<16 | uint32(e[19])<<24)}
		l.n++
	}
	return l
}

// keep writes the slots.
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

// find returns a slot, or nil.
func (l *slots) find(index int64) *slot {
	for i := range l.n {
		if l.all[i].index == index {
			return &l.all[i]
		}
	}
	return nil
}

// forget drops the oldest slot.
func (l *slots) forget() {
	copy(l.all[:], l.all[1:l.n])
	l.n--
}

// slotOf returns the slot in which tokens end that are lent now.
func slotOf(now int64) int64 { return (now + LeaseLife.Microseconds()) / slotLength }

// room returns what the bucket holds at most beside what is lent. It is never below 0, also if the burst was cut.
func room(limit Limit, l *slots) Tokens { return max(0, capacity(limit)-l.out()) }

// room is what a State holds at most.
func (s *State) room() Tokens {
	l := s.lent()
	return room(s.Limit, &l)
}

// Out returns what is lent.
func (s *State) Out() Tokens {
	l := s.lent()
	return l.out()
}

// Holders returns how many processes hold what is lent, 0 if nothing is. Those that the state has not heard of since count until it
// forgets them.
func (s *State) Holders() int64 {
	l := s.lent()
	if l.out() == 0 {
		return 0
	}
	return l.holders()
}

// Epoch names the slots that the bucket has; 0 if it has lent nothing.
func (s *State) Epoch() int64 {
	l := s.lent()
	return l.epoch
}

// earnBeside earns until a time like a token bucket, but only up to what is not lent; slots are forgotten on the way.
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

// ticks returns a time on the clock by which the bucket earns: a refill in steps is a continuous one by a clock that ticks
// once in each interval.
func (s *State) ticks(at int64) int64 {
	if step := s.Limit.Interval; step > 0 {
		return at - at%step
	}
	return at
}

// stepBack puts all that is lent into the latest slot, because the clock stepped back: the slots' times are of the clock
// before.
func (s *State) stepBack(now int64) {
	l := s.lent()
	if l.n == 0 {
		return
	}
	l.all[0] = slot{slotOf(now), l.out(), l.holders()}
	l.n, l.epoch = 1, now
	s.keep(&l)
}

// untilBeside returns after how many microseconds a bucket that has lent tokens holds an amount, which is at most its burst.
func (s *State) untilBeside(amount Tokens) int64 {
	later := *s
	for {
		l := later.lent()
		wait := later.Stamp - s.Stamp
		if room(later.Limit, &l) >= amount {
			wait += int64(later.Bucket.until(amount) / time.Microsecond)
			if l.n == 0 || s.Stamp+wait < l.all[0].forgotten() {
				return wait
			}
		}
		later.advance(l.all[0].forgotten())
	}
}

// Lease takes a holder's report and answers what it asks. The state must be settled.
//
// Reports of another epoch, and of slots that are forgotten, say nothing about tokens that are lent now. What is given back
// can be lent and taken again.
//
// A grant covers what the holder needs, or is refused. Beyond that it is no more than the holder wants, than half of an
// equal share of the level, or a share of what the bucket earned since the holder's last ask, and it leaves half of the
// burst to others. A loan knows no shares.
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
		most := min(float64(ask.Want-max(ask.Need, ask.Held)), free)
		if !ask.Loan {
			most = min(most, max(0.5*free/holders, earned/holders), 0.5*float64(capacity(s.Limit))-float64(l.out()+short))
		}
		g.Amount = short + Tokens(math.Floor(max(0, most)))
		s.Level.Micros -= g.Amount
	}
	// A holder who gets nothing is counted too, so that the others' shares leave it some.
	if g.Amount > 0 || !ask.Loan && (ask.Want > 0 || ask.Need > 0) {
		l.lend(g.Slot, g.Amount, !ask.Loan)
	}
	s.keep(&l)
	g.Level, g.Out = s.Level, l.out()
	if g.Refused && short <= capacity(s.Limit) {
		g.Wait = s.untilBeside(short)
	}
	return g
}

// takeBack counts what a holder returns.
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

// lend puts what is lent, and its holder if it is one, into a slot, which is the latest.
func (l *slots) lend(index int64, amount Tokens, isHolder bool) {
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
	if isHolder {
		t.holders++
	}
}
