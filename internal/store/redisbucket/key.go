package redisbucket

import (
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// No two keys share an encoding, and no subject chooses its slot:
//
//	{s1}12:203.0.113.9    tenant 1, rule 12, a subject of at most 64 bytes
//	{s1}12#<32 bytes>     a longer one, by its SHA-256
//	{blues1}12:42         the same of a deployment with the prefix blue
//
// The hash tag comes first, so Redis Cluster ignores later braces, and a tenant's buckets are in one slot. A : or #
// follows the rule's digits, and the tenant's s ends the prefix, so nothing is ambiguous.
func appendKey(buf []byte, prefix string, key enforce.Key) []byte {
	buf = appendRule(buf, prefix, key.Tenant, key.Rule)
	if key.IsHashed() {
		digest := key.Digest()
		return append(append(buf, '#'), digest[:]...)
	}
	return append(append(buf, ':'), key.Subject...)
}

func appendRule(buf []byte, prefix string, tenant rules.TenantID, rule rules.RuleID) []byte {
	return strconv.AppendInt(appendTag(buf, prefix, tenant), int64(rule), 10)
}

func appendTag(buf []byte, prefix string, tenant rules.TenantID) []byte {
	buf = append(buf, '{')
	buf = append(buf, prefix...)
	buf = append(buf, 's')
	buf = strconv.AppendInt(buf, int64(tenant), 10)
	return append(buf, '}')
}

func parseKey(key string) (rule rules.RuleID, subject string, isHashed, ok bool) {
	prefix, subject, isHashed, ok := splitKey(key)
	id, err := strconv.ParseInt(prefix[strings.IndexByte(prefix, '}')+1:], 10, 64)
	return rules.RuleID(id), subject, isHashed, ok && err == nil
}

// splitKey returns the prefix of a rule, and the subject or its digest.
func splitKey(key string) (rule, subject string, hashed, ok bool) {
	tag := strings.IndexByte(key, '}')
	end := strings.IndexAny(key[tag+1:], ":#") // after the rule's digits
	if tag < 0 || end < 0 {
		return "", "", false, false
	}
	end += tag + 1
	return key[:end], key[end+1:], key[end] == '#', true
}
