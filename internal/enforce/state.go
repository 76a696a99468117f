package enforce

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// State is a bucket as a store keeps it, comparable with ==.
//
// Algorithms differ in how the level earns (see earnUntil) and in what a check takes (see take).
type State struct {
	// Bucket.Level leaves out a sliding window's former window; below 0 it is a debt, or a list above an edited limit.
	Bucket
	// Former is the amount used in a sliding window's former window. After the clock stepped back, Former is the end of
	// a window or step whose tokens are spent; see keepWindow.
	Former Tokens
	// Entries are a log, concurrency slots, or the time slots of lent tokens.
	Entries string
}

// NewState returns a full bucket.
func NewState(limit Limit, now int64) State {
	return State{Bucket: Bucket{Level: Level{Micros: capacity(limit)}, Stamp: now, Limit: limit}}
}

// CommitTime is how long a transaction may take from setting Since to its commit, in microseconds. Full reads that
// began CommitTime after a Since have seen its limit. After a longer import, processes that have not polled may set
// buckets back to the former limit.
const CommitTime = int64(10 * time.Second / time.Microsecond)

// Advance earns until now, by a newer limit from its Since on. A clock that went back, or meets a window again, earns
// nothing.
//
// If the caller read all limits (readAt) more than CommitTime after the bucket's limit began and has another, the
// database lost the bucket's. The caller's then holds from readAt on, with Since = readAt − CommitTime, so a later
// edit wins.
//
// mustWrite: the limit was edited or the clock stepped back, so write even if nothing is taken.
func (s *State) Advance(limit Limit, readAt, now int64) (mustWrite bool) {
	if s.Stamp > now {
		s.keepWindow(now)
		s.Stamp, mustWrite = now, true
		s.limitEntries()
		s.stepBack(now)
	}
	from := limit.Since
	if limit.Since <= s.Limit.Since {
		if limit.SameAmounts(s.Limit) || s.Limit.Since+CommitTime >= readAt {
			limit = s.Limit
		} else {
			from, limit.Since = readAt, readAt-CommitTime
		}
	}
	if limit != s.Limit {
		s.earnUntil(min(max(from, s.Stamp), now))
		s.edit(limit)
		mustWrite = true
	}
	s.earnUntil(now)
	return mustWrite
}

// keepWindow remembers the spent window or step before the Stamp steps back. After a step of more than a window the
// next one counts as spent, so no bucket waits for more than two.
func (s *State) keepWindow(now int64) {
	if s.Limit.Kind > rules.KindFixedWindow || s.Limit.Interval == 0 || s.Entries != "" {
		return
	}
	_, had := s.Limit.WindowAt(s.Stamp)
	_, end := s.Limit.WindowAt(now)
	_, next := s.Limit.WindowAt(end)
	if s.Former = min(max(Tokens(had), s.Former), Tokens(next)); s.Former <= Tokens(end) {
		s.Former = 0
	}
}

func (s *State) earnUntil(to int64) {
	switch s.Limit.Kind {
	case rules.KindFixedWindow:
		start, end := s.Limit.WindowAt(to)
		if start > s.Stamp && s.Former < Tokens(end) {
			s.Level = Level{Micros: capacity(s.Limit)}
		}
		if s.Former <= Tokens(end) {
			s.Former = 0
		}
	case rules.KindSlidingWindow:
		start, _ := s.Limit.WindowAt(to)
		if start > s.Stamp {
			s.Former = 0
			if s.Stamp >= start-s.Limit.Interval {
				s.Former = capacity(s.Limit) - s.Level.Micros
			}
			s.Level = Level{Micros: capacity(s.Limit)}
		}
	case rules.KindSlidingWindowLog, rules.KindConcurrency:
		s.dropEntries(to)
	default:
		if s.Entries != "" {
			s.earnBeside(to)
			break
		}
		ticks, from := s.ticks(to), s.ticks(s.Stamp)
		if s.Former > 0 {
			had := int64(s.Former) - s.Limit.Interval
			if had <= ticks {
				s.Former = 0
			}
			from = max(from, min(had, ticks)) // processes of another release move the Stamp and keep Former
		}
		s.Level = s.Level.earn(ticks-from, s.Limit)
	}
	s.Stamp = to
}

// edit keeps a token bucket's level. Other limits, and changes of algorithm, keep the amount used, up to the burst, but
// never as concurrency slots.
func (s *State) edit(limit Limit) {
	former := s.Limit
	switch {
	case limit.Kind == rules.KindTokenBucket && former.Kind == rules.KindTokenBucket:
		if deepest := -capacity(limit); s.Level.Micros < deepest {
			s.Level = Level{Micros: deepest}
		}
		if limit.Interval != former.Interval {
			s.Former = 0
		}
	case limit.SameAmounts(former):
	case limit.Kind == former.Kind && limit.Kind >= rules.KindSlidingWindowLog: // lists stay as they are
		s.Level.Micros += capacity(limit) - capacity(former)
	case limit.Kind == rules.KindConcurrency || former.Kind == rules.KindConcurrency:
		*s = NewState(limit, s.Stamp)
	case limit.Kind >= rules.KindFixedWindow && former.Kind == limit.Kind && former.Interval == limit.Interval:
		s.Level.Micros = max(0, capacity(limit)-(capacity(former)-s.Level.Micros))
	default:
		used := min(capacity(former)-s.left(), capacity(limit))
		*s = NewState(limit, s.Stamp)
		if used = charge(limit, used); used > 0 {
			s.take(used, Holder{})
		}
	}
	s.Limit = limit
	s.limitEntries()
}

func (s *State) left() Tokens {
	if s.Limit.Kind != rules.KindSlidingWindow {
		return s.Level.Micros
	}
	_, end := s.Limit.WindowAt(s.Stamp)
	return max(0, s.Level.Micros-weighed(s.Limit, s.Former, end-s.Stamp))
}

// weighed returns what a sliding window counts of the former one's use, in whole tokens, rounded half up. Without
// rounding, the last token of each window would wait for its end, and steady checks got one less than the burst.
func weighed(limit Limit, former Tokens, rest int64) Tokens {
	share := float64(former) * (float64(rest) / float64(limit.Interval))
	return Tokens(math.Floor(share/float64(Token)+0.5)) * Token
}

// View returns the bucket as callers see it.
func (s *State) View() Bucket {
	view := s.Bucket
	if isListed(s.Limit) {
		view.Level = Level{Micros: max(0, s.left())}
	}
	return view
}

// take takes an amount from charge, which must be left, but no concurrency slot without a holder to release it.
func (s *State) take(amount Tokens, holder Holder) {
	if s.Limit.Kind == rules.KindConcurrency && holder == (Holder{}) {
		return
	}
	s.Level.Micros -= amount
	switch s.Limit.Kind {
	case rules.KindSlidingWindowLog:
		s.logTake(amount)
	case rules.KindConcurrency:
		s.Entries += holdOf(holder, s.Stamp+s.Limit.Interval)
	}
}

// Wait is Tier.Wait for an advanced state.
func (s *State) Wait(cost Tokens) (wait time.Duration, ok bool) {
	amount := charge(s.Limit, cost)
	if amount > capacity(s.Limit) {
		return 0, false
	}
	if view := s.View(); view.Level.Holds(amount) {
		return 0, true
	}
	switch s.Limit.Kind {
	case rules.KindSlidingWindow:
		return micros(s.slidingWait(amount)), true
	case rules.KindSlidingWindowLog:
		return micros(s.logWait(amount)), true
	case rules.KindConcurrency:
		return SlotWait, true
	}
	return s.untilLevel(amount), true
}

func (s *State) untilLevel(amount Tokens) time.Duration {
	if s.Entries != "" {
		return micros(s.untilBeside(amount))
	}
	return s.until(amount, s.Former)
}

// SlotWait is reported by full concurrency limits: slots are released at unknown times.
const SlotWait = time.Second

// slidingWait returns microseconds: to this window's time at which the former one weighs little enough, or into the
// next.
func (s *State) slidingWait(amount Tokens) int64 {
	_, end := s.Limit.WindowAt(s.Stamp)
	room, former, least := s.Level.Micros-amount, s.Former, int64(1)
	if room < 0 {
		full := capacity(s.Limit)
		least = end - s.Stamp
		room, former, end = full-amount, full-s.Level.Micros, end+s.Limit.Interval
	}
	// The share must be less than half a token above the room's whole tokens.
	below := (float64(room/Token) + 0.5) * float64(Token)
	rest := int64(math.Ceil(float64(s.Limit.Interval)*(below/float64(former)))) - 1
	if weighed(s.Limit, former, rest) > room { // the doubles are rounded
		rest--
	}
	return max(least, end-s.Stamp-rest)
}

// TimeToFull returns how long an advanced bucket takes to be as if unused.
func (s *State) TimeToFull() time.Duration {
	switch s.Limit.Kind {
	case rules.KindSlidingWindow:
		_, end := s.Limit.WindowAt(s.Stamp)
		switch {
		case s.Level.Micros < capacity(s.Limit):
			return micros(end + s.Limit.Interval - s.Stamp)
		case s.Former > 0:
			return micros(end - s.Stamp)
		}
		return 0
	case rules.KindSlidingWindowLog, rules.KindConcurrency:
		return micros(s.lastEntryEnd() - s.Stamp)
	}
	return s.untilLevel(capacity(s.Limit))
}

// Holder owns a concurrency slot: a reservation id's first bytes.
type Holder [holderBytes]byte

// Entries are bytes, so that states compare with == and stores keep them unchanged:
//
//	log          {time in µs (double), whole tokens (16 bits)}, the oldest first
//	concurrency  {holder, when the slot is freed in µs (double)}
const (
	holderBytes = 8
	logBytes    = 8 + 2
	holdBytes   = holderBytes + 8
)

func timeAt(entries string, at int) int64 {
	return int64(math.Float64frombits(uint64At(entries[at : at+8])))
}

func uint64At(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func countAt(entries string, at int) int64 {
	return int64(entries[at+8]) | int64(entries[at+9])<<8
}

func appendTime(b []byte, at int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(at)))
}

func holdOf(holder Holder, until int64) string {
	return string(appendTime(append(make([]byte, 0, holdBytes), holder[:]...), until))
}

func (s *State) logTake(amount Tokens) {
	count := uint16(amount / Token)
	kept := s.Entries
	if last := len(kept) - logBytes; last >= 0 && timeAt(kept, last) == s.Stamp {
		count += uint16(countAt(kept, last))
		kept = kept[:last]
	}
	entry := appendTime(append(make([]byte, 0, len(kept)+logBytes), kept...), s.Stamp)
	s.Entries = string(binary.LittleEndian.AppendUint16(entry, count))
}

func (s *State) dropEntries(now int64) {
	if s.Limit.Kind == rules.KindSlidingWindowLog {
		ended := 0
		for ; ended < len(s.Entries) && timeAt(s.Entries, ended) <= now-s.Limit.Interval; ended += logBytes {
			s.Level.Micros += Tokens(countAt(s.Entries, ended)) * Token
		}
		s.Entries = s.Entries[ended:]
		return
	}
	for at := 0; at < len(s.Entries); {
		if timeAt(s.Entries, at+holderBytes) > now {
			at += holdBytes
			continue
		}
		s.Level.Micros += Token
		s.Entries = s.Entries[:at] + s.Entries[at+holdBytes:]
	}
}

// limitEntries bounds entries after an edit or a step back of the clock: none is later than now or held too long.
func (s *State) limitEntries() {
	switch s.Limit.Kind {
	case rules.KindSlidingWindowLog:
		late := len(s.Entries)
		var count int64
		for ; late > 0 && timeAt(s.Entries, late-logBytes) > s.Stamp; late -= logBytes {
			count += countAt(s.Entries, late-logBytes)
		}
		if s.Entries = s.Entries[:late]; count > 0 {
			s.logTake(Tokens(count) * Token)
		}
	case rules.KindConcurrency:
		latest := s.Stamp + s.Limit.Interval
		var kept []byte
		for at := 0; at < len(s.Entries); at += holdBytes {
			kept = append(kept, s.Entries[at:at+holderBytes]...)
			kept = appendTime(kept, min(timeAt(s.Entries, at+holderBytes), latest))
		}
		s.Entries = string(kept)
	}
}

func (s *State) logWait(amount Tokens) int64 {
	missing := amount - s.Level.Micros
	for at := 0; at < len(s.Entries); at += logBytes {
		if missing -= Tokens(countAt(s.Entries, at)) * Token; missing <= 0 {
			return timeAt(s.Entries, at) + s.Limit.Interval - s.Stamp
		}
	}
	return 0
}

func (s *State) lastEntryEnd() int64 {
	last := s.Stamp
	if s.Limit.Kind == rules.KindSlidingWindowLog {
		if len(s.Entries) > 0 {
			last = timeAt(s.Entries, len(s.Entries)-logBytes) + s.Limit.Interval
		}
		return last
	}
	for at := 0; at < len(s.Entries); at += holdBytes {
		last = max(last, timeAt(s.Entries, at+holderBytes))
	}
	return last
}
