package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Permission is one thing an API key may do.
type Permission string

// What API keys may do: ask checks, ask for explanations, manage the tenant, give back what others reserved, and report how
// what stands behind the limits does.
const (
	PermissionCheck   Permission = "check"
	PermissionExplain Permission = "explain"
	PermissionManage  Permission = "manage"
	PermissionRefund  Permission = "refund"
	PermissionReport  Permission = "report"
)

// Permissions are all permissions.
var Permissions = []Permission{PermissionCheck, PermissionExplain, PermissionManage, PermissionRefund, PermissionReport}

// Key is an API key as checks know it: never the secret, only its digest.
type Key struct {
	ID          string // the part between slk_ and the secret; public
	TenantID    rules.TenantID
	Digest      [32]byte // SHA-256 of the secret
	Permissions []Permission
	ExpiresAt   time.Time // zero: never
	Revoked     bool
	Revision    int64
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
}

// maxKeyNameLength is in characters.
const maxKeyNameLength = 100

// Validate returns all that is wrong with an API key, as people describe it, that is to be used from now on.
func (k *NamedKey) Validate(now time.Time) rules.FieldErrors {
	var errs rules.FieldErrors
	if k.Name == "" {
		errs.Add("name", "must not be empty")
	}
	errs.Add("name", rules.WrongLine(k.Name, maxKeyNameLength))
	if len(k.Permissions) == 0 {
		errs.Add("permissions", "must be at least one of check, explain, manage, refund and report")
	}
	for _, permission := range k.Permissions {
		errs.Add("permissions", rules.WrongChoice(permission, Permissions...))
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
	// RotateKey creates a key with the old one's name and permissions, and its expiry unless next has one of its
	// own, and lets the old one expire after the grace period, or earlier if it would anyway. It returns both. A key that is revoked or
	// expired cannot be rotated: ErrInUse is not it, but FieldErrors on key_id.
	RotateKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected, next NamedKey, grace time.Duration) (old, created NamedKey, err error)
	// RevokeKey cannot be undone. A key that is revoked already is ErrNotFound.
	RevokeKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected) error
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

// SplitKeyToken takes an API key apart. Key ids contain no underscore.
func SplitKeyToken(token string) (keyID, secret string, ok bool) {
	rest, isToken := strings.CutPrefix(token, tokenPrefix)
	keyID, secret, _ = strings.Cut(rest, "_")
	return keyID, secret, isToken && keyID != "" && secret != ""
}

// DigestSecret returns what is stored of a key's secret.
func DigestSecret(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
