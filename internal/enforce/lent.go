package enforce

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

// A process can lease tokens of a busy bucket, and spend them without asking the store. Lent tokens occupy the burst:
// the bucket fills up to burst − out, where out is lent and not yet reported. Level and lent tokens earn like one
// bucket, so no interval admits more than burst + rate × time, whichever process crashes.
//
// A bucket keeps no owners, only a few time slots with the amount whose lease ends in each.
const (
	LeaseLife  = lend.Life
	SlotLength = 250 * time.Millisecond
	SlotGuard  = lend.SlotGuard
	MaxSlots   = lend.MaxSlots
	// LeaseHorizon caps the time since an owner's last request that counts for its share of the rate.
	LeaseHorizon = time.Second

	slotLength, slotGuard = int64(SlotLength / time.Microsecond), int64(SlotGuard / time.Microsecond)
)

// CanLease reports whether a limit's buckets can lend.
func CanLease(limit Limit) bool { return limit.Kind == rules.KindTokenBucket && limit.Interval == 0 }

// Lender is a store that lends.
type Lender interface {
	// Lease answers one tenant's requests, with distinct keys, in one round trip; see State.Lease.
	//
	// After an error the leases not marked Answered have no answer. Their reports may have been counted, and must not
	// be repeated.
	Lease(ctx context.Context, leases []Lease) error
}

// Lease is an owner's request to one bucket.
type Lease struct {
	Key      Key
	Limit    Limit // as the caller knows it
	Ask      Ask
	Grant    Grant
	Answered bool
}

// Ask is lend.Ask.
type Ask = lend.Ask

// Return is lend.Return.
type Return = lend.Return

// Grant is a bucket's answer to an Ask.
type Grant struct {
	Amount      Tokens
	Slot, Epoch int64
	// Holders counts the processes with the bucket's tokens, this one included.
	Level   Level
	Out     Tokens
	Holders int64
	Limit   Limit // in force
	// Refused: the bucket lacked Need, and may hold it after Wait µs; 0 if never.
	Refused bool
	Wait    int64
}

// Pause is lend.Pause after the grant.
func (g *Grant) Pause() time.Duration {
	return lend.Pause(g.Level.Micros, g.Holders, g.Limit.Rate, g.Refused)
}

// slots are the time slots of a token bucket, as State.Entries keeps them:
//
//	epoch in µs (double); then {slot (double), out in millionths (double), holders (32 bits)}, the oldest first
//
// A list or a clock that steps back begins an epoch: other epochs' slot numbers mean other tokens.
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

func room(limit Limit, l *slots) Tokens { return max(0, capacity(limit)-l.out()) }

func (s *State) room() Tokens {
	l := s.lent()
	return room(s.Limit, &l)
}

// Out is what is lent.
func (s *State) Out() Tokens {
	l := s.lent()
	return l.out()
}

// Holders counts processes with lent tokens, a dead one until its time slot is forgotten.
func (s *State) Holders() int64 {
	l := s.lent()
	if l.out() == 0 {
		return 0
	}
	return l.holders()
}

// Epoch names the time slots; 0 if nothing is lent.
func (s *State) Epoch() int64 {
	l := s.lent()
	return l.epoch
}

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

// ticks is the clock of earnings: a refill in steps is a continuous one by a clock that ticks once per interval.
func (s *State) ticks(at int64) int64 {
	if step := s.Limit.Interval; step > 0 {
		return at - at%step
	}
	return at
}

func (s *State) stepBack(now int64) {
	l := s.lent()
	if l.n == 0 {
		return
	}
	l.all[0] = slot{slotOf(now), l.out(), l.holders()}
	l.n, l.epoch = 1, now
	s.keep(&l)
}

// untilBeside is in microseconds.
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

// Lease counts a report and answers a request, on an advanced state.
//
// Reports of other epochs or forgotten slots are ignored; returned tokens can be taken again.
//
// Beyond Need it is the least of
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
