package rules

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
	"time"
)

// tokenPrefix begins every API key, so that scanners for leaked secrets know one.
const tokenPrefix = "slk_"

// NewToken makes up an API key: the token that its holder keeps, slk_<key id>_<secret>, and the
// public part and the digest that are stored. The secret has 128 random bits, so that a plain
// digest of it cannot be searched.
func NewToken() (token, keyID string, digest [32]byte) {
	var random [8 + 16]byte
	_, _ = rand.Read(random[:]) // it never fails; see its documentation
	keyID = hex.EncodeToString(random[:8])
	secret := hex.EncodeToString(random[8:])
	return tokenPrefix + keyID + "_" + secret, keyID, DigestSecret(secret)
}

// SplitToken takes an API key apart. Key ids contain no underscore.
func SplitToken(token string) (keyID, secret string, ok bool) {
	rest, isToken := strings.CutPrefix(token, tokenPrefix)
	keyID, secret, _ = strings.Cut(rest, "_")
	return keyID, secret, isToken && keyID != "" && secret != ""
}

// DigestSecret returns what is stored of a key's secret.
func DigestSecret(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// UnknownKey is one refusal for a key that does not exist and for a wrong secret: the two must not be told
// apart.
const UnknownKey = "No API key in force has this id and secret."

// Authenticate finds the key in force that the lines of a request's Authorization header carry, and its tenant,
// or says to whoever sent them why there is none. That a key was revoked or has expired is told only to those
// who know its secret. Do not change the key.
func (s *Snapshot) Authenticate(authorization []string, now time.Time) (key *Key, tenant *TenantRules, refusal string) {
	id, secret, ok := bearerKey(authorization)
	if !ok {
		return nil, nil, "Send one API key: Authorization: Bearer slk_<key id>_<secret>."
	}
	key, found := s.Key(id)
	if !found {
		key = new(Key)
	}
	digest := DigestSecret(secret)
	if subtle.ConstantTimeCompare(digest[:], key.Digest[:]) != 1 || !found {
		return nil, nil, UnknownKey
	}
	if refusal = key.Refusal(now); refusal != "" {
		return nil, nil, refusal
	}
	if tenant = s.Tenant(key.TenantID); tenant == nil {
		return nil, nil, UnknownKey
	}
	return key, tenant, ""
}

// Refusal says to its holder why a key is not in force; "" if it is.
func (k *Key) Refusal(now time.Time) string {
	switch {
	case k.Revoked:
		return "This API key was revoked; use another."
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return "This API key has expired; use another."
	}
	return ""
}

// bearerKey takes the key out of the one Authorization header that there must be.
func bearerKey(authorization []string) (id, secret string, ok bool) {
	if len(authorization) != 1 {
		return "", "", false
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	id, secret, ok = SplitToken(strings.TrimLeft(token, " "))
	return id, secret, ok && strings.EqualFold(scheme, "Bearer")
}
