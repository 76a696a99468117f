package enforce

import (
	"encoding/binary"
	"math"

	"github.com/sluicegate/sluice/internal/rules"
)

// The database keeps a bucket in one value, with little-endian numbers:
//
//	version (byte, 1)  kind (byte)  micros (int64)  fraction (32 bits)  stamp (int64)
//	the limit in force: rate (double)  burst (int64)  since (int64)  interval (int64)
//	former (int64)  entries of a log or of concurrency slots; see State
//
// Later formats follow bucket.lua's rule: each change of meaning is a new version, and unknown ones are left alone.
const (
	version    = 1
	maxEntries = rules.MaxListed * 16

	// MaxStateVersion bounds the versions of later releases; other programs wrote higher ones.
	MaxStateVersion = 31
	StateBytes      = 2 + 8 + 4 + 8 + 4*8 + 8
)

// Append appends the state in the database's format.
func (s *State) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, version, byte(s.Limit.Kind))
	b = le.AppendUint64(b, uint64(s.Level.Micros))
	b = le.AppendUint32(b, s.Level.Fraction)
	b = le.AppendUint64(b, uint64(s.Stamp))
	b = AppendLimit(b, &s.Limit)
	b = le.AppendUint64(b, uint64(s.Former))
	return append(b, s.Entries...)
}

// AppendLimit leaves out the kind.
func AppendLimit(b []byte, l *Limit) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, math.Float64bits(l.Rate))
	b = le.AppendUint64(b, uint64(l.Burst))
	b = le.AppendUint64(b, uint64(l.Since))
	return le.AppendUint64(b, uint64(l.Interval))
}

// LimitAt is the inverse of AppendLimit.
func LimitAt(kind rules.Kind, b []byte) Limit {
	le := binary.LittleEndian
	return Limit{
		Kind: kind, Rate: math.Float64frombits(le.Uint64(b)), Burst: int64(le.Uint64(b[8:])),
		Since: int64(le.Uint64(b[16:])), Interval: int64(le.Uint64(b[24:])),
	}
}

// ParseState reads a state. unknown: a newer release wrote it; neither unknown nor ok: another program did.
func ParseState(b []byte) (s State, unknown, ok bool) {
	if len(b) > 0 && b[0] > version && b[0] <= MaxStateVersion {
		return s, true, false
	}
	if len(b) < StateBytes || b[0] != version || len(b) > StateBytes+maxEntries {
		return s, false, false
	}
	le := binary.LittleEndian
	s.Level.Micros = Tokens(le.Uint64(b[2:]))
	s.Level.Fraction = le.Uint32(b[10:])
	s.Stamp = int64(le.Uint64(b[14:]))
	s.Limit = LimitAt(rules.Kind(b[1]), b[22:])
	s.Former = Tokens(le.Uint64(b[54:]))
	s.Entries = string(b[StateBytes:])
	entry := map[rules.Kind]int{rules.KindSlidingWindowLog: 10, rules.KindConcurrency: 16}[s.Limit.Kind]
	switch {
	case s.Limit.Kind.Algorithm() == "",
		s.Limit.Burst < 1 || s.Limit.Burst > rules.MaxBurst,
		s.Level.Micros > Tokens(s.Limit.Burst)*Token,
		!(s.Limit.Rate >= 0 && s.Limit.Rate <= rules.MaxRate),
		entry == 0 && s.Entries != "",
		entry > 0 && len(s.Entries)%entry != 0:
		return State{}, false, false
	}
	return s, false, true
}
