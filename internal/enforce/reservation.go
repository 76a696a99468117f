package enforce

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// MaxReservations is by tenant, and the others say how long a reservation is open.
const (
	MaxReservations   = 100_000
	DefaultReserveFor = 10 * time.Minute
	MaxReserveFor     = 24 * time.Hour
)

// ReservationID is random and cannot be guessed.
type ReservationID [16]byte

func newReservationID() (id ReservationID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// String is the id as callers see it.
func (id ReservationID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseReservationID parses a String.
func ParseReservationID(text string) (id ReservationID, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return id, err == nil && copy(id[:], b) == len(id) && len(b) == len(id)
}

// Holder owns the reservation's concurrency slots.
func (id ReservationID) Holder() Holder { return Holder(id[:holderBytes]) }

// Reservation keeps a check's charges for a settlement.
type Reservation struct {
	ID   ReservationID
	Life time.Duration
	Key  string
	// Optional: no rule that can deny needs the reservation. If MaxReservations are open, the check passes without it
	// and takes no slot.
	Optional bool
	// User and Costs, requests first, are kept if somebody counts what users use; see Settled.Changes.
	User  string
	Costs []MeterCost
}

// Change sets the costs of a settlement, and returns the differences.
func (r *Reservation) Change(with *Settlement) (changes []MeterCost) {
	if r.Costs == nil {
		return nil
	}
	r.Costs = slices.Clone(r.Costs) // the check's are the caller's
	set := func(old *MeterCost) {
		cost, ok := with.CostOf(old.Meter)
		if more := cost - old.Cost; ok && (more > 0 || more < 0 && !with.Extend) {
			changes = append(changes, MeterCost{old.Meter, more})
			old.Cost = cost
		}
	}
	for i := range r.Costs {
		set(&r.Costs[i])
	}
	for _, named := range with.Costs {
		isNew := !slices.ContainsFunc(r.Costs, func(c MeterCost) bool { return c.Meter == named.Meter })
		if isNew && len(r.Costs) <= rules.MaxMeters {
			r.Costs = append(r.Costs, MeterCost{Meter: named.Meter})
			set(&r.Costs[len(r.Costs)-1])
		}
	}
	return changes
}

// AppendUse appends User and Costs as stores keep them, with little-endian numbers:
//
//	length of the user's id (16 bits)  that id  number of costs (byte)
//	for each: length of the meter (byte)  meter  cost (int64)
func (r *Reservation) AppendUse(b []byte) []byte {
	le := binary.LittleEndian
	user := r.User[:min(len(r.User), math.MaxUint16)]
	b = append(le.AppendUint16(b, uint16(len(user))), user...)
	b = append(b, byte(len(r.Costs)))
	for _, c := range r.Costs {
		b = append(append(b, byte(len(c.Meter))), c.Meter...)
		b = le.AppendUint64(b, uint64(c.Cost))
	}
	return b
}

var errBrokenUse = errors.New("the costs of the reservation are cut off")

// ParseUse reads what AppendUse wrote, and returns the rest.
func (r *Reservation) ParseUse(b []byte) (rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < 3 || len(b) < 3+int(le.Uint16(b)) {
		return nil, errBrokenUse
	}
	end := 2 + int(le.Uint16(b))
	r.User = string(b[2:end])
	count, b := int(b[end]), b[end+1:]
	for range count {
		if len(b) < 1 || len(b) < 1+int(b[0])+8 {
			return nil, errBrokenUse
		}
		end := 1 + int(b[0])
		r.Costs = append(r.Costs, MeterCost{rules.Meter(b[1:end]), Tokens(le.Uint64(b[end:]))})
		b = b[end+8:]
	}
	return b, nil
}

// Reserver keeps reservations beside their buckets, so neither is lost without the other.
type Reserver interface {
	// SettleReservation settles or extends at most once across all processes; without an open reservation nothing
	// changes.
	//
	// ErrRefundForbidden means that nothing changed. After any other error the reservation may have been settled; if
	// Found, it has, and only the Changes are known.
	SettleReservation(ctx context.Context, tenant rules.TenantID, id ReservationID, with Settlement) (Settled, error)
}

// Settlement is how to settle or extend a reservation.
type Settlement struct {
	// Cost replaces the estimate of requests if HasCost, Costs those of other meters; concurrency slots are freed in
	// any case.
	Cost    Tokens
	HasCost bool
	Costs   []MeterCost
	Cancel  bool
	// Extend keeps reservation and slots open for another Life, at most MaxReserveFor after the check. Higher costs are
	// decided like a check, and become the estimates; lower ones change nothing.
	Extend bool
	// Key is the settling API key's id; only the reserving key may give back, unless MayRefund.
	Key       string
	MayRefund bool
	// Limit, if not nil, returns the limit in force for a subject or its digest (isHashed); ok is false if it is not
	// known.
	Limit func(rule rules.RuleID, subject string, isHashed bool) (limit Limit, ok bool)
	// Denies reports whether a rule can still deny an Extend; nil: all that could deny the check.
	Denies func(rule rules.RuleID) bool
}

// CanDeny reports whether a charge can deny an Extend.
func (w *Settlement) CanDeny(c *Charge) bool {
	return !c.Shadow && (w.Denies == nil || w.Denies(c.Key.Rule))
}

// LimitFor returns the newer limit, the caller's or the reservation's: after an edit the older one would give back too
// much.
func (w *Settlement) LimitFor(rule rules.RuleID, subject string, isHashed bool, reserved Limit) Limit {
	if w.Limit != nil {
		if limit, ok := w.Limit(rule, subject, isHashed); ok && limit.Since > reserved.Since {
			return limit
		}
	}
	return reserved
}

// CostOf returns the cost that replaces a meter's estimates, if any.
func (w *Settlement) CostOf(meter rules.Meter) (cost Tokens, ok bool) {
	switch {
	case w.Cancel:
		return 0, true
	case meter == "":
		return w.Cost, w.HasCost
	}
	for _, c := range w.Costs {
		if c.Meter == meter {
			return c.Cost, true
		}
	}
	return 0, false
}

// Forbidden reports whether charges of another key would be given back.
func (w *Settlement) Forbidden(reservedBy string, charges []Charge) bool {
	if w.Key == reservedBy || w.MayRefund || w.Extend {
		return false
	}
	for i := range charges {
		c := &charges[i]
		if cost, ok := w.CostOf(c.Meter); ok && c.Limit.Kind != rules.KindConcurrency &&
			charge(c.Limit, cost) < c.Amount {
			return true
		}
	}
	return false
}

// NotCounted is the final charge of concurrency slots.
const NotCounted Tokens = -1

// Settled answers a settlement of charges with final amounts; estimate is the check's cost.
func (w *Settlement) Settled(estimate Tokens, charges []Charge, final []Tokens) Settled {
	s := Settled{Found: true, Charged: NotCounted}
	for i := range charges {
		if final[i] == NotCounted {
			continue
		}
		least := &s.Charged
		if meter := charges[i].Meter; meter != "" {
			least = s.costOf(meter)
		}
		if *least == NotCounted || final[i] < *least {
			*least = final[i]
		}
	}
	switch {
	case s.Charged != NotCounted:
	case w.Cancel:
		s.Charged = 0
	case w.HasCost:
		s.Charged = w.Cost
	case len(s.Costs) > 0:
		s.Charged = 0
	default:
		s.Charged = estimate
	}
	return s
}

func (s *Settled) costOf(meter rules.Meter) *Tokens {
	for i := range s.Costs {
		if s.Costs[i].Meter == meter {
			return &s.Costs[i].Cost
		}
	}
	s.Costs = append(s.Costs, MeterCost{meter, NotCounted})
	return &s.Costs[len(s.Costs)-1].Cost
}

// Settled answers a Settlement.
type Settled struct {
	Found bool
	// Denied: a bucket does not hold an Extend's higher costs; nothing changed.
	Denied bool
	// Charged is the final cost of requests, the least charge of any bucket, and Costs those of other meters. Charged
	// is below Cost at the deepest debt, and above after a window that ended before a refund.
	Charged Tokens
	Costs   []MeterCost
	Buckets []SettledBucket
	// Changes are by how much the costs of the User's check, of time CheckedAt (µs since the Unix epoch), grew.
	User      string
	CheckedAt int64
	Changes   []MeterCost
}

// SettledBucket is a bucket after a settlement.
type SettledBucket struct {
	Key   Key // bounded
	State State
	Taken Tokens // less than 0 if the settlement gave back
}

// Add adds a bucket that changed, unless it is a list.
func (s *Settled) Add(key Key, state State, taken Tokens) {
	if taken != 0 && state.Limit.Kind <= rules.KindSlidingWindow {
		state.Entries = "" // what is lent
		s.Buckets = append(s.Buckets, SettledBucket{key, state, taken})
	}
}

// ErrRefundForbidden means that another key reserved.
var ErrRefundForbidden = errors.New("only the key that reserved may give back, or one with the permission refund")

// Unreserve lets a check with an Optional reservation pass without it.
func (c *BucketCheck) Unreserve() { c.Reserve, c.Holder = nil, Holder{} }

// OpenReservation is a stored reservation, with times in µs since the Unix epoch on the store's clock.
type OpenReservation struct {
	Reservation
	CheckedAt int64
	Ends      int64 // it is open before that
	Cost      Tokens
	Charges   []Charge
}

// Open returns the reservation of an allowed check.
func (c *BucketCheck) Open(now int64) OpenReservation {
	return OpenReservation{
		Reservation: *c.Reserve, CheckedAt: now, Ends: now + c.Reserve.Life.Microseconds(), Cost: c.Cost,
		Charges: c.Charges(),
	}
}

// Settle settles or extends on buckets in memory, named by their charge's index; a nil bucket was not used.
func (r *OpenReservation) Settle(with Settlement, now int64, bucket func(i int) *State,
	keep func(i int, state State),
) Settled {
	final, states := make([]Tokens, len(r.Charges)), make([]State, len(r.Charges))
	mustWrite, changed := make([]bool, len(r.Charges)), Settled{}
	for i := range r.Charges {
		c, state := &r.Charges[i], &states[i]
		limit := with.LimitFor(c.Key.Rule, c.Key.Subject, c.Key.IsHashed(), c.Limit)
		*state = NewState(limit, now)
		if held := bucket(i); held != nil {
			*state = *held
			mustWrite[i] = state.Advance(limit, 0, now)
		}
		before, isHeld := *state, false
		if final[i], isHeld = c.Settle(state, &with, r.CheckedAt, r.ID.Holder()); !isHeld {
			return Settled{Found: true, Denied: true}
		}
		if final[i] != NotCounted {
			changed.Add(c.Key, *state, final[i]-charge(state.Limit, c.Amount))
		}
		mustWrite[i] = mustWrite[i] || *state != before
	}
	for i := range r.Charges {
		if mustWrite[i] {
			keep(i, states[i])
		}
	}
	settled := with.Settled(r.Cost, r.Charges, final)
	settled.Buckets = changed.Buckets
	settled.User, settled.CheckedAt, settled.Changes = r.User, r.CheckedAt, r.Change(&with)
	if with.Extend {
		r.Ends = min(now+r.Life.Microseconds(), r.CheckedAt+MaxReserveFor.Microseconds())
		for i := range r.Charges {
			r.Charges[i].Amount = max(r.Charges[i].Amount, final[i])
		}
	}
	return settled
}

// Charge is what a reservation took from one bucket.
type Charge struct {
	Key           Key
	Limit         Limit // in force at the time
	Amount        Tokens
	Meter         rules.Meter
	Shadow, After bool
}

// IsPlain reports whether an enforced rule charged requests before the work: stores keep that in their oldest format.
func (c *Charge) IsPlain() bool { return c.Meter == "" && !c.Shadow && !c.After }

// Charges returns what a check took.
func (c *BucketCheck) Charges() []Charge {
	var charges []Charge
	for i := range c.Tiers {
		if tier := &c.Tiers[i]; tier.Holds {
			charges = append(charges, Charge{
				tier.Key, tier.Bucket.Limit, tier.Charged, tier.Meter, tier.Shadow, tier.After,
			})
		}
	}
	return charges
}

// Settle corrects an amount in an advanced state, and returns the final charge, or NotCounted. isHeld is false if an
// enforced bucket does not hold an Extend's cost.
//
// A refund goes back into the same window only; a surcharge takes as takeMore does.
func (c *Charge) Settle(s *State, with *Settlement, taken int64, holder Holder) (charged Tokens, isHeld bool) {
	if s.Limit.Kind == rules.KindConcurrency {
		if with.Extend {
			s.extend(holder, taken+MaxReserveFor.Microseconds())
		} else {
			s.release(holder)
		}
		return NotCounted, true
	}
	if c.Limit.Kind == rules.KindConcurrency {
		return NotCounted, true
	}
	estimate := charge(s.Limit, c.Amount) // the limit may count whole tokens by now
	cost, ok := with.CostOf(c.Meter)
	more := charge(s.Limit, cost) - estimate
	switch {
	case !ok || with.Extend && more <= 0:
		return estimate, true
	case with.Extend && !s.View().Level.Holds(c.needed(more)):
		return estimate, !with.CanDeny(c)
	case more >= 0:
		return estimate + s.takeMore(more, Holder{}), true
	}
	return estimate - s.giveBack(-more, taken), true
}

func (c *Charge) needed(more Tokens) Tokens {
	if c.After {
		return 1
	}
	return more
}

func (s *State) extend(holder Holder, latest int64) {
	for at := 0; at < len(s.Entries); at += holdBytes {
		if s.Entries[at:at+holderBytes] == string(holder[:]) {
			s.Entries = s.Entries[:at] + holdOf(holder, min(s.Stamp+s.Limit.Interval, latest)) +
				s.Entries[at+holdBytes:]
			return
		}
	}
}

func (s *State) release(holder Holder) {
	for at := 0; at < len(s.Entries); at += holdBytes {
		if s.Entries[at:at+holderBytes] == string(holder[:]) {
			s.Entries = s.Entries[:at] + s.Entries[at+holdBytes:]
			s.Level.Micros += Token
			return
		}
	}
}

// giveBack returns how much of an amount still counts, and gives that back.
func (s *State) giveBack(amount Tokens, taken int64) Tokens {
	full := s.room()
	switch s.Limit.Kind {
	case rules.KindFixedWindow:
		if start, _ := s.Limit.WindowAt(s.Stamp); start > taken {
			return 0
		}
	case rules.KindSlidingWindow:
		start, _ := s.Limit.WindowAt(s.Stamp)
		if taken < start {
			if taken < start-s.Limit.Interval {
				amount = 0
			}
			amount = min(amount, s.Former)
			s.Former -= amount
			return amount
		}
	case rules.KindSlidingWindowLog:
		return s.logGiveBackAt(amount, taken)
	}
	amount = min(amount, max(0, full-s.Level.Micros))
	if s.Level.Micros += amount; s.Level.Micros == full {
		s.Level.Fraction = 0
	}
	return amount
}

// takeMore returns how much fits: a token bucket can go into debt by one burst, others give all they have.
func (s *State) takeMore(amount Tokens, holder Holder) Tokens {
	least := Tokens(0)
	if s.Limit.Kind == rules.KindTokenBucket {
		least = -capacity(s.Limit)
	}
	if amount = min(amount, max(0, s.left()-least)); amount > 0 {
		s.take(amount, holder)
	}
	return amount
}

func (s *State) logGiveBackAt(amount Tokens, taken int64) Tokens {
	for at := 0; at < len(s.Entries); at += logBytes {
		if timeAt(s.Entries, at) != taken {
			continue
		}
		count := Tokens(countAt(s.Entries, at)) * Token
		amount = min(amount, count)
		s.Level.Micros += amount
		before, after := s.Entries[:at], s.Entries[at+logBytes:]
		if count > amount {
			left := uint16((count - amount) / Token)
			before += string(append(appendTime(nil, taken), byte(left), byte(left>>8)))
		}
		s.Entries = before + after
		return amount
	}
	return 0
}
