package rules

import (
	"strconv"
	"strings"
)

// Shards is into how many parts the buckets of a spread tenant are divided. Those of a part are in one slot of a Redis Cluster, so
// it is also how many masters one tenant can use. It can never change, because it says where buckets are.
const Shards = 16

// ShardOf returns the shard of a text, from 1: FNV-1a, mixed once more because texts often differ in their last digits alone.
func ShardOf(text string) uint8 {
	h := uint32(2166136261)
	for i := range len(text) {
		h = (h ^ uint32(text[i])) * 16777619
	}
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return uint8((h^h>>16)%Shards) + 1
}

// holder returns what a spread bucket is placed by: the user of a subject, or the whole subject. isShared: neither, because many
// share the bucket, or because all buckets of the rule are.
func (p Pattern) holder(subject string) (holder string, isShared bool) {
	placeholders, user, isEndpoint := 0, -1, false
	for i := range p.segments {
		if s := &p.segments[i]; s.Placeholder {
			if s.Field == FieldUser {
				user = placeholders
			}
			isEndpoint = s.Field == FieldEndpoint
			placeholders++
		}
	}
	switch {
	case placeholders == 0, placeholders == 1 && isEndpoint && len(p.segments) == 1:
		return "", true
	case user < 0 || placeholders == 1:
		return subject, false
	}
	rest := subject // as AppendSubject put it together
	for i := 0; ; i++ {
		digits, after, _ := strings.Cut(rest, ":")
		length, err := strconv.Atoi(digits)
		if err != nil || length < 0 || length > len(after) {
			return subject, false
		}
		if i == user {
			return after[:length], false
		}
		rest = strings.TrimPrefix(after[length:], ",")
	}
}

// WrongIfSpread returns what keeps a rule from a tenant whose buckets are spread. Its checks are decided on tokens that buckets lend, and
// a script decides only the buckets of one shard: those that cannot be lent must be there, with the others of their user.
func (r *Rule) WrongIfSpread() FieldErrors {
	var wrong FieldErrors
	switch isLimit := r.Active && r.Action == ActionLimit; {
	case !isLimit:
	case r.Algorithm == Concurrency:
		wrong.Add("algorithm", "must not be concurrency: the buckets of this tenant are spread, and its checks cannot hold places")
	case r.Pattern.SplitsByUser(), r.Algorithm == TokenBucket && r.RefillInterval == 0:
	default:
		wrong.Add("key_pattern", "must contain user:{user_id}: the buckets of this tenant are spread, so only limits of single users and "+
			"token buckets without refill_interval are possible")
	}
	return wrong
}
