package snapshot

import (
	"crypto/subtle"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

// Key is an API key of a Snapshot: never the secret, only its digest.
type Key struct {
	auth.Key
	noted uint32 // the minute of the last use that KeyUses knows, atomically: all that changes in a Snapshot
}

// UnknownKey is one refusal for a key that does not exist and for a wrong secret: the two must not be told
// apart.
const UnknownKey = "No API key in force has this id and secret."

// Authenticate finds the key in force that the lines of a request's Authorization header carry, and its tenant.
// Otherwise refusal tells the caller why not, and key is the one that was revoked or has expired: only callers who know its
// secret learn that. Do not change the key.
func (s *Snapshot) Authenticate(authorization []string, now time.Time) (key *Key, tenant *Tenant, refusal string) {
	id, secret, ok := bearerKey(authorization)
	if !ok {
		return nil, nil, "Send one API key: Authorization: Bearer slk_<key id>_<secret>."
	}
	key, found := s.Key(id)
	if !found {
		key = new(Key)
	}
	digest := auth.DigestSecret(secret)
	if subtle.ConstantTimeCompare(digest[:], key.Digest[:]) != 1 || !found {
		return nil, nil, UnknownKey
	}
	if refusal = key.Refusal(now); refusal != "" {
		return key, nil, refusal
	}
	if tenant = s.Tenant(key.TenantID); tenant == nil {
		return nil, nil, UnknownKey
	}
	return key, tenant, ""
}

// bearerKey takes the key out of the one Authorization header that there must be.
func bearerKey(authorization []string) (id, secret string, ok bool) {
	if len(authorization) != 1 {
		return "", "", false
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	id, secret, ok = auth.SplitKeyToken(strings.TrimLeft(token, " "))
	return id, secret, ok && strings.EqualFold(scheme, "Bearer")
}
