package enforce

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

// KeyOf returns the key of a match's bucket.
func KeyOf(tenant *rules.Tenant, m *rules.Match) Key {
	key := Key{Tenant: tenant.ID, Rule: m.Rule.ID, Subject: m.Subject}
	if tenant.Spread {
		key.Shard = m.Shard()
	}
	return key
}

// Text returns the key without its tenant, as violations and the admin API name a bucket: the rule's id, a colon, and the
// subject. Each key of a tenant has its own text.
//
//	12:42                        rule 12, user 42
//	7:2:42,11:/api/search        rule 7, user 42 on /api/search
//	3:                           rule 3, whose only bucket has no subject
func (k Key) Text() string {
	return strconv.FormatInt(int64(k.Rule), 10) + ":" + k.Subject
}

// maxSubject is how long a subject may be, in bytes, to be kept as it is.
const maxSubject = 64

// IsLong reports whether the subject is longer than 64 bytes. Stores keep its Digest instead, so that a bound on buckets
// is a bound on memory whatever callers send.
func (k Key) IsLong() bool { return len(k.Subject) > maxSubject }

// Digest returns the SHA-256 of the subject.
func (k Key) Digest() [sha256.Size]byte { return sha256.Sum256([]byte(k.Subject)) }

// ParseKey parses a Text. Whether the tenant has such a rule and subject is for snapshot.Tenant.Bucket to say, and KeyOf then knows
// the Shard.
func ParseKey(tenant rules.TenantID, text string) (Key, error) {
	digits, subject, found := strings.Cut(text, ":")
	id, err := strconv.ParseInt(digits, 10, 64)
	key := Key{Tenant: tenant, Rule: rules.RuleID(id), Subject: subject}
	if !found || err != nil || key.Text() != text { // the last refuses +1 and 01
		return Key{}, fmt.Errorf("read a bucket key: must be a rule's id, a colon and a subject, such as 12:42, got %q", text)
	}
	return key, nil
}
