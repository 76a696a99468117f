package auth

import (
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

// Key is an API key as checks know it: never the secret, only its digest.
type Key struct {
	ID          string // the part between slk_ and the secret; public
	TenantID    rules.TenantID
	Digest      [32]byte // SHA-256 of the secret
	Permissions []Permission
	Networks    []netip.Prefix // where it may be used from; empty: anywhere
	ExpiresAt   time.Time      // zero: never
	Revoked     bool
	Revision    int64
}

// AllowsFrom reports whether the key may be used from an address. Only a key without a list may be used from an unknown
// one.
func (k *Key) AllowsFrom(addr netip.Addr) bool {
	if len(k.Networks) == 0 {
		return true
	}
	addr = rules.PlainIP(addr)
	return slices.ContainsFunc(k.Networks, func(network netip.Prefix) bool { return network.Contains(addr) })
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

// NamedKey is an API key as people manage it.
type NamedKey struct {
	Key
	Name       string
	CreatedAt  time.Time
	RevokedAt  time.Time // zero: it is not
	LastUsedAt time.Time // zero: never; to the minute
	// CreatedBy made the key; its Kind is "" for keys of releases that did not record it.
	CreatedBy rules.Actor
	// CreatorLeft is for a creator who can no longer act here: a person without membership, or a disabled account.
	CreatorLeft bool
	// KeptAt is when somebody decided that the key stays although its creator has left; zero: nobody has.
	KeptAt time.Time
}

const (
	maxKeyNameLength = 100 // in characters
	// maxKeyNetworks bounds what each use of a key compares.
	maxKeyNetworks = 50
)

// Validate returns all that is wrong with a tenant's API key, as people describe it, that is to be used from now on.
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

// KeyReader reads API keys for people; checks read them by way of a Snapshot.
type KeyReader interface {
	// Keys lists the latest first, those created before the one with the id before; "" is no bound.
	Keys(ctx context.Context, tenant rules.TenantID, before string, limit int) ([]NamedKey, error)
	Key(ctx context.Context, tenant rules.TenantID, keyID string) (NamedKey, error)
}

// KeyStore writes API keys, in the name of one Actor.
type KeyStore interface {
	KeyReader

	CreateKey(ctx context.Context, key NamedKey) (NamedKey, error)
	// RotateKey creates a key with the old one's name, permissions and networks, and its expiry unless next has one of its
	// own, and lets the old one expire after the grace period, or earlier if it would anyway. It returns both. A key that is revoked or
	// expired cannot be rotated: ErrInUse is not it, but FieldErrors on key_id.
	RotateKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected, next NamedKey, grace time.Duration) (old, created NamedKey, err error)
	// RevokeKey cannot be undone. A key that is revoked already is ErrNotFound.
	RevokeKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected) error
	// KeepKey notes that a key stays although its creator has left. It is rules.ErrFinal for one that is revoked, and
	// ErrCreatorStays if the creator has not left.
	KeepKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected) (NamedKey, error)
}

// ErrCreatorStays means that there is nothing to decide about a key.
var ErrCreatorStays = errors.New("the key's creator has not left")

// ServiceKeyStore keeps service keys, which belong to the platform and act in every tenant.
type ServiceKeyStore interface {
	// ServiceKeys lists the latest first, those created before the one with the id before; "" is no bound.
	ServiceKeys(ctx context.Context, before string, limit int) ([]NamedKey, error)
	ServiceKey(ctx context.Context, keyID string) (NamedKey, error)
	// ServiceKeyUsed notes the use of a key, to the minute.
	ServiceKeyUsed(ctx context.Context, keyID string) error
	CreateServiceKey(ctx context.Context, by rules.Actor, key NamedKey) (NamedKey, error)
	// RotateServiceKey, RevokeServiceKey and KeepServiceKey are as those of KeyStore.
	RotateServiceKey(ctx context.Context, by rules.Actor, keyID string, expected rules.Expected, next NamedKey, grace time.Duration) (created NamedKey, err error)
	RevokeServiceKey(ctx context.Context, by rules.Actor, keyID string, expected rules.Expected) (NamedKey, error)
	KeepServiceKey(ctx context.Context, by rules.Actor, keyID string, expected rules.Expected) (NamedKey, error)
}

// tokenPrefix begins every API key, so that scanners for leaked secrets know one.
const tokenPrefix = "slk_"

// NewKeyToken makes up an API key: the token that its holder keeps, slk_<key id>_<secret>, and the
// public part and the digest that are stored. The secret has 128 random bits, so that a plain
// digest of it cannot be searched.
func NewKeyToken() (token, keyID string, digest [32]byte) {
	var random [8 + 16]byte
	_, _ = rand.Read(random[:]) // it never fails; see its documentation
	keyID = hex.EncodeToString(random[:8])
	secret := hex.EncodeToString(random[8:])
	return tokenPrefix + keyID + "_" + secret, keyID, DigestSecret(secret)
}

// servicePrefix begins the ids of service keys, so that only their holders make a process look for one.
const servicePrefix = "svc"

// NewServiceKeyToken is NewKeyToken for a service key.
func NewServiceKeyToken() (token, keyID string, digest [32]byte) {
	token, keyID, digest = NewKeyToken()
	return strings.Replace(token, keyID, servicePrefix+keyID, 1), servicePrefix + keyID, digest
}

// IsServiceKeyID reports whether an id is that of a service key, if there is such a key.
func IsServiceKeyID(keyID string) bool {
	return len(keyID) == len(servicePrefix)+16 && strings.HasPrefix(keyID, servicePrefix)
}

// SplitKeyToken takes an API key apart. Key ids contain no underscore.
func SplitKeyToken(token string) (keyID, secret string, ok bool) {
	rest, isToken := strings.CutPrefix(token, tokenPrefix)
	keyID, secret, _ = strings.Cut(rest, "_")
	return keyID, secret, isToken && keyID != "" && secret != ""
}

// DigestSecret returns what is stored of a key's secret.
func DigestSecret(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
