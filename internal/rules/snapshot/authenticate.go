package snapshot

import (
	"crypto/subtle"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

// Key is an API key of a Snapshot, with the digest of its secret.
type Key struct {
	auth.Key
	noted uint32 // minute of the last recorded use, accessed atomically: the only mutable part of a Snapshot
}

// UnknownKey is also for a wrong secret, so that a caller cannot find out which.
const UnknownKey = "No API key in force has this id and secret."

// Authenticate returns the valid key of a request, which must not be modified, and its tenant. Otherwise refusal says
// why not, and key is the revoked or expired one, if the caller has its secret.
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

func bearerKey(authorization []string) (id, secret string, ok bool) {
	if len(authorization) != 1 {
		return "", "", false
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	id, secret, ok = auth.SplitKeyToken(strings.TrimLeft(token, " "))
	return id, secret, ok && strings.EqualFold(scheme, "Bearer")
}
