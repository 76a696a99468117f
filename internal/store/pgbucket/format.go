package pgbucket

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// slack is how long a full bucket is kept, because callers may hold an older limit for seconds and must find the limit
// in force. All stores agree.
const slack = 10 * time.Second

// A bucket's state is one value. Numbers are little-endian.
//
//	version (byte, 1)  kind (byte)  micros (int64)  fraction (32 bits)  stamp (int64)
//	the limit in force: rate (double)  burst (int64)  since (int64)  interval (int64)
//	former (int64)  entries of a log or of concurrency slots; see enforce.State
//
// The rules for later formats are those of redisbucket/bucket.lua: every change of meaning takes the next version, and
// a process leaves unknown versions alone.
const (
	version     = 1
	stateBytes  = 2 + 8 + 4 + 8 + 4*8 + 8
	maxVersion  = 31
	maxEntries  = rules.MaxListed * 16
	hashedBytes = 1 + 2*32
)

func appendState(b []byte, s *enforce.State) []byte {
	le := binary.LittleEndian
	b = append(b, version, byte(s.Limit.Kind))
	b = le.AppendUint64(b, uint64(s.Level.Micros))
	b = le.AppendUint32(b, s.Level.Fraction)
	b = le.AppendUint64(b, uint64(s.Stamp))
	b = appendLimit(b, &s.Limit)
	b = le.AppendUint64(b, uint64(s.Former))
	return append(b, s.Entries...)
}

func appendLimit(b []byte, l *enforce.Limit) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, math.Float64bits(l.Rate))
	b = le.AppendUint64(b, uint64(l.Burst))
	b = le.AppendUint64(b, uint64(l.Since))
	return le.AppendUint64(b, uint64(l.Interval))
}

func limitAt(kind rules.Kind, b []byte) enforce.Limit {
	le := binary.LittleEndian
	return enforce.Limit{
		Kind: kind, Rate: math.Float64frombits(le.Uint64(b)), Burst: int64(le.Uint64(b[8:])),
		Since: int64(le.Uint64(b[16:])), Interval: int64(le.Uint64(b[24:])),
	}
}

// parseState reads a state. unknown: a newer release wrote it. If neither unknown nor ok, another program wrote it.
func parseState(b []byte) (s enforce.State, unknown, ok bool) {
	if len(b) > 0 && b[0] > version && b[0] <= maxVersion {
		return s, true, false
	}
	if len(b) < stateBytes || b[0] != version || len(b) > stateBytes+maxEntries {
		return s, false, false
	}
	le := binary.LittleEndian
	s.Level.Micros = enforce.Tokens(le.Uint64(b[2:]))
	s.Level.Fraction = le.Uint32(b[10:])
	s.Stamp = int64(le.Uint64(b[14:]))
	s.Limit = limitAt(rules.Kind(b[1]), b[22:])
	s.Former = enforce.Tokens(le.Uint64(b[54:]))
	s.Entries = string(b[stateBytes:])
	entry := map[rules.Kind]int{rules.KindSlidingWindowLog: 10, rules.KindConcurrency: 16}[s.Limit.Kind]
	switch {
	case s.Limit.Kind.Algorithm() == "",
		s.Limit.Burst < 1 || s.Limit.Burst > rules.MaxBurst,
		s.Level.Micros > enforce.Tokens(s.Limit.Burst)*enforce.Token,
		!(s.Limit.Rate >= 0 && s.Limit.Rate <= rules.MaxRate),
		entry == 0 && s.Entries != "",
		entry > 0 && len(s.Entries)%entry != 0:
		return enforce.State{}, false, false
	}
	return s, false, true
}

// fullAt returns when a bucket may be forgotten, in microseconds since the Unix epoch.
func fullAt(s *enforce.State) int64 {
	return s.Stamp + (s.TimeToFull() + slack).Microseconds()
}

// stored is a key as the table has it. A long subject is # and its digest in hexadecimal, which is longer than any
// subject that is kept, so it equals none.
type stored struct {
	tenant, rule int64
	subject      string
}

func storedKey(key enforce.Key) stored {
	k := stored{int64(key.Tenant), int64(key.Rule), key.Subject}
	if key.IsLong() {
		digest := key.Digest()
		k.subject = "#" + hex.EncodeToString(digest[:])
	}
	return k
}

func (k stored) compare(other stored) int {
	return cmp.Or(cmp.Compare(k.tenant, other.tenant), cmp.Compare(k.rule, other.rule),
		cmp.Compare(k.subject, other.subject))
}

const (
	oidInt8  = 20
	oidTID   = 27
	oidBytea = 17
)

func appendArray(b []byte, oid uint32, n int) []byte {
	dimensions := uint32(1)
	if n == 0 {
		dimensions = 0
	}
	be := binary.BigEndian
	b = be.AppendUint32(b, dimensions)
	b = be.AppendUint32(b, 0) // no nulls
	b = be.AppendUint32(b, oid)
	if n == 0 {
		return b
	}
	b = be.AppendUint32(b, uint32(n))
	return be.AppendUint32(b, 1) // the first index
}

func appendInt8(b []byte, n int64) []byte {
	b = binary.BigEndian.AppendUint32(b, 8)
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

func appendBytes[T string | []byte](b []byte, value T) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

func appendStateElement(b []byte, s *enforce.State) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(stateBytes+len(s.Entries)))
	return appendState(b, s)
}

func isHashed(subject []byte) bool {
	return len(subject) == hashedBytes && bytes.HasPrefix(subject, []byte("#"))
}
