package redisbucket

import (
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// appendKey encodes a key. No two keys share an encoding, and no subject chooses its slot:
//
//	{s1}12:203.0.113.9    tenant 1, rule 12, a subject of at most 64 bytes
//	{s1}12#<32 bytes>     a longer one, by its SHA-256
//	{blues1}12:42         the same of a deployment whose prefix is blue
//	{s1.01aa}12:42        of a tenant whose buckets are spread, in shard 1
//
// The hash tag comes first, so Redis Cluster ignores later braces, and a tenant's buckets, or those of a shard, are in one slot. The ids are
// digits, so the first byte after them tells the two forms apart, and the last s before them ends the prefix.
func appendKey(buf []byte, prefix string, key enforce.Key) []byte {
	buf = appendRule(buf, prefix, key)
	if key.IsLong() {
		digest := key.Digest()
		return append(append(buf, '#'), digest[:]...)
	}
	return append(append(buf, ':'), key.Subject...)
}

// appendRule encodes the prefix of a rule's keys.
func appendRule(buf []byte, prefix string, key enforce.Key) []byte {
	return strconv.AppendInt(appendTag(buf, prefix, key), int64(key.Rule), 10)
}

// appendTag encodes the hash tag.
func appendTag(buf []byte, prefix string, key enforce.Key) []byte {
	buf = append(buf, '{')
	buf = append(buf, prefix...)
	buf = append(buf, 's')
	buf = strconv.AppendInt(buf, int64(key.Tenant), 10)
	if key.Shard > 0 {
		buf = append(append(buf, '.'), shardTags[key.Shard-1]...)
	}
	return append(buf, '}')
}

// shardTags end the hash tags of a tenant's shards. They are chosen so that the slots of any tenant's shards lie evenly among all:
// one in each sixteenth, and so nearly the same number on each master. That holds whatever stands before them, because a slot is a
// CRC, and tags of one length differ in their CRC by what they differ in themselves. The shards of rules with consecutive ids
// lie far apart.
var shardTags = [rules.Shards]string{
	"01aa", "02fc", "03da", "04fa", "05ba", "06dd", "07fb", "08bb", "09dd", "10bb", "11ac", "12fa", "13ba", "14ab", "15bc", "16db",
}

// parseKey returns the rule of an encoded key, and the subject or its digest.
func parseKey(key string) (rule rules.RuleID, subject string, isHashed, ok bool) {
	prefix, subject, isHashed, ok := splitKey(key)
	id, err := strconv.ParseInt(prefix[strings.IndexByte(prefix, '}')+1:], 10, 64)
	return rules.RuleID(id), subject, isHashed, ok && err == nil
}

// splitKey splits an encoded key into the prefix of its rule and the subject or its digest.
func splitKey(key string) (rule, subject string, hashed, ok bool) {
	tag := strings.IndexByte(key, '}')
	end := strings.IndexAny(key[tag+1:], ":#") // after the rule's digits
	if tag < 0 || end < 0 {
		return "", "", false, false
	}
	end += tag + 1
	return key[:end], key[end+1:], key[end] == '#', true
}
