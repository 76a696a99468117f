package pgbucket

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// slack: callers may hold an older limit for seconds, and must find the one in force; all stores agree.
const slack = 10 * time.Second

const hashedBytes = 1 + 2*32

func fullAt(s *enforce.State) int64 {
	return s.Stamp + (s.TimeToFull() + slack).Microseconds()
}

// A long subject is # and its hexadecimal digest, longer than any kept subject.
type stored struct {
	tenant, rule int64
	subject      string
}

func storedKey(key enforce.Key) stored {
	k := stored{int64(key.Tenant), int64(key.Rule), key.Subject}
	if key.IsHashed() {
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
	b = binary.BigEndian.AppendUint32(b, uint32(enforce.StateBytes+len(s.Entries)))
	return s.Append(b)
}

func isHashed(subject []byte) bool {
	return len(subject) == hashedBytes && bytes.HasPrefix(subject, []byte("#"))
}
