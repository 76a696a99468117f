package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Key is an API key for checks, with the digest of its secret.
type Key struct {
	ID          string // public: the part between slk_ and the secret
	TenantID    rules.TenantID
	Digest      [32]byte // SHA-256 of the secret
	Permissions []Permission
	Networks    []netip.Prefix // empty: anywhere
	ExpiresAt   time.Time      // zero: never
	Revoked     bool
	Revision    int64
}

// AllowsFrom reports whether the key may be used from an address, which may be unknown only for a key without networks.
func (k *Key) AllowsFrom(addr netip.Addr) bool {
	if len(k.Networks) == 0 {
		return true
	}
	addr = rules.PlainIP(addr)
	return slices.ContainsFunc(k.Networks, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// Refusal explains to the holder why the key is not valid; "" if it is.
func (k *Key) Refusal(now time.Time) string {
	switch {
	case k.Revoked:
		return "This API key was revoked; use another."
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return "This API key has expired; use another."
	}
	return ""
}

// NamedKey is an API key for people.
type NamedKey struct {
	Key
	Name        string
	CreatedAt   time.Time
	RevokedAt   time.Time
	LastUsedAt  time.Time   // to the minute
	CreatedBy   rules.Actor // without a Kind for keys of releases that did not record it
	CreatorLeft bool        // the creator's account is disabled or no longer a member
	KeptAt      time.Time   // when somebody decided to keep the key of a creator who has left
}

const (
	maxKeyNameLength = 100
	maxKeyNetworks   = 50 // bounds the comparisons of each use
)

// Validate returns the mistakes in a new API key of a tenant.
func (k *NamedKey) Validate(now time.Time) rules.FieldErrors {
	return k.validate(now, TenantPermissions)
}

// ValidateService is Validate for a service key.
func (k *NamedKey) ValidateService(now time.Time) rules.FieldErrors {
	return k.validate(now, ServicePermissions)
}

func (k *NamedKey) validate(now time.Time, known []Permission) rules.FieldErrors {
	var errs rules.FieldErrors
	if k.Name == "" {
		errs.Add("name", "must not be empty")
	}
	errs.Add("name", rules.WrongLine(k.Name, maxKeyNameLength))
	if len(k.Permissions) == 0 {
		errs.Add("permissions", "must be at least one")
	}
	for _, permission := range k.Permissions {
		errs.Add("permissions", rules.WrongChoice(permission, known...))
	}
	if len(k.Networks) > maxKeyNetworks {
		errs.Add("networks", fmt.Sprintf("must be at most %d; use larger networks", maxKeyNetworks))
	}
	if !k.ExpiresAt.IsZero() {
		errs.Add("expires_at", rules.WrongExpiry(k.ExpiresAt, now))
	}
	return errs
}

// KeyReader reads API keys for people; those of tenant 0 are service keys.
type KeyReader interface {
	// Keys lists keys, latest first, before the key with an id; "" is no bound.
	Keys(ctx context.Context, tenant rules.TenantID, before string, limit int) ([]NamedKey, error)
	Key(ctx context.Context, tenant rules.TenantID, keyID string) (NamedKey, error)
}

// ErrCreatorStays means that the key's creator has not left.
var ErrCreatorStays = errors.New("the key's creator has not left")

const tokenPrefix = "slk_" // lets scanners for leaked secrets recognize API keys

// NewKeyToken creates an API key: its token slk_<key id>_<secret>, its public id, and the digest to store. The secret
// has 128 random bits, so that a plain digest is safe.
func NewKeyToken() (token, keyID string, digest [32]byte) {
	var random [8 + 16]byte
	_, _ = rand.Read(random[:])
	keyID = hex.EncodeToString(random[:8])
	secret := hex.EncodeToString(random[8:])
	return tokenPrefix + keyID + "_" + secret, keyID, DigestSecret(secret)
}

const servicePrefix = "svc" // other ids cause no lookup

// NewServiceKeyToken is NewKeyToken for a service key.
func NewServiceKeyToken() (token, keyID string, digest [32]byte) {
	token, keyID, digest = NewKeyToken()
	return strings.Replace(token, keyID, servicePrefix+keyID, 1), servicePrefix + keyID, digest
}

// IsServiceKeyID reports whether an id has the form of a service key's.
func IsServiceKeyID(keyID string) bool {
	return len(keyID) == len(servicePrefix)+16 && strings.HasPrefix(keyID, servicePrefix)
}

// SplitKeyToken splits an API key.
func SplitKeyToken(token string) (keyID, secret string, ok bool) {
	rest, isToken := strings.CutPrefix(token, tokenPrefix)
	keyID, secret, _ = strings.Cut(rest, "_")
	return keyID, secret, isToken && keyID != "" && secret != ""
}

// IsKeyToken reports whether a token begins like an API key.
func IsKeyToken(token []byte) bool { return bytes.HasPrefix(token, []byte(tokenPrefix)) }

// DigestSecret returns the stored digest of a secret.
func DigestSecret(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
