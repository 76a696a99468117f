package enforce

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// KeyOf returns the key of a match's bucket.
//
// A bucket of an own limit has a negative rule id, so edits do not reach it, and its limit in the subject, so switching
// limits refills nothing.
func KeyOf(tenant *rules.Tenant, m *rules.Match) Key {
	if m.IsOwn {
		return Key{Tenant: tenant.ID, Rule: -m.Rule.ID, Subject: rules.OwnSubject(m.Limit, m.Subject)}
	}
	return Key{Tenant: tenant.ID, Rule: m.Rule.ID, Subject: m.Subject}
}

// BucketOf returns the match of a key; see snapshot.Tenant.Bucket.
func BucketOf(tenant *snapshot.Tenant, key Key, now time.Time) (m rules.Match, ok bool) {
	if key.Rule >= 0 {
		return tenant.Bucket(key.Rule, key.Subject, now)
	}
	limit, subject, ok := rules.CutOwnSubject(key.Subject)
	if !ok {
		return m, false
	}
	m, ok = tenant.Bucket(-key.Rule, subject, now)
	m.Limit, m.IsOwn = limit, true
	return m, ok && isReplaceable(m.Rule)
}

// Text returns the key without its tenant, as violations and the admin API show it:
//
//	12:42                        rule 12, user 42
//	7:2:42,11:/api/search        rule 7, user 42 on /api/search
//	3:                           rule 3, whose only bucket has no subject
//	-12:100:60000000:42          rule 12, user 42, whose descriptor brought a limit of 100 per minute
func (k Key) Text() string {
	return strconv.FormatInt(int64(k.Rule), 10) + ":" + k.Subject
}

const maxSubject = 64

// IsHashed reports whether stores keep the subject's Digest, because callers choose subjects and memory must stay
// bounded.
func (k Key) IsHashed() bool { return len(k.Subject) > maxSubject }

// Digest is SHA-256.
func (k Key) Digest() [sha256.Size]byte { return sha256.Sum256([]byte(k.Subject)) }

// Bounded replaces a long subject by # and its digest in hexadecimal, longer than any kept subject.
func (k Key) Bounded() Key {
	if k.IsHashed() {
		digest := k.Digest()
		k.Subject = boundedSubject(digest[:])
	}
	return k
}

// KeyOfDigest returns the Bounded key of a long subject.
func KeyOfDigest(tenant rules.TenantID, rule rules.RuleID, digest string) Key {
	return Key{Tenant: tenant, Rule: rule, Subject: boundedSubject([]byte(digest))}
}

func boundedSubject(digest []byte) string { return "#" + hex.EncodeToString(digest) }

// ParseKey parses a Text, whose rule and subject need not exist.
func ParseKey(tenant rules.TenantID, text string) (Key, error) {
	digits, subject, found := strings.Cut(text, ":")
	id, err := strconv.ParseInt(digits, 10, 64)
	key := Key{Tenant: tenant, Rule: rules.RuleID(id), Subject: subject}
	if !found || err != nil || key.Text() != text { // the last refuses +1 and 01
		return Key{}, fmt.Errorf("read a bucket key: must be a rule's id, a colon and a subject, such as 12:42, got %q",
			text)
	}
	return key, nil
}
