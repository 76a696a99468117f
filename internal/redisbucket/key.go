package redisbucket

import (
	"crypto/sha256"
	"strconv"

	"github.com/sluicegate/sluice/internal/enforce"
)

// rawSubject is how long a subject may be, in bytes, to stand in the key as it is.
const rawSubject = 64

// appendKey writes down a key so that no two share a bucket and no subject chooses its slot:
//
//	{s1}12:203.0.113.9    tenant 1, rule 12, a subject of at most 64 bytes
//	{s1}12#<32 bytes>     a longer one, by its SHA-256
//	{blues1}12:42         the same of a deployment whose prefix is blue
//
// The hash tag comes first, so Redis Cluster looks no further for braces and a tenant's buckets are
// in one slot. The ids are digits, so the first byte after them tells the two forms apart, and the
// last s before them ends the prefix.
func appendKey(buf []byte, prefix string, key enforce.Key) []byte {
	buf = append(buf, '{')
	buf = append(buf, prefix...)
	buf = append(buf, 's')
	buf = strconv.AppendInt(buf, int64(key.Tenant), 10)
	buf = append(buf, '}')
	buf = strconv.AppendInt(buf, int64(key.Rule), 10)
	if len(key.Subject) <= rawSubject {
		buf = append(buf, ':')
		buf = append(buf, key.Subject...)
	} else {
		digest := sha256.Sum256([]byte(key.Subject))
		buf = append(buf, '#')
		buf = append(buf, digest[:]...)
	}
	return buf
}
