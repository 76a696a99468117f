package auth

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// SecretKeyBytes is the length of a Vault's key.
const SecretKeyBytes = 32

// Vault encrypts stored secrets, so that a reader of the database or a backup cannot use them.
type Vault struct {
	keys []vaultKey // the first one seals; the others open older secrets
}

type vaultKey struct {
	id  [keyIDLength]byte
	box cipher.AEAD
}

const keyIDLength = 4

var (
	// ErrClosed means that no key of the Vault opens the secret.
	ErrClosed = errors.New("the secret is sealed under a key that is not configured; keep former keys in " +
		"SLUICE_SECRET_KEY, after the present one")
	// ErrNoSecretKey means that the operation needs a key.
	ErrNoSecretKey = errors.New("no secret key is configured")
)

// NewVault reads keys of 32 random bytes in base64, separated by commas, of which the first one seals.
func NewVault(keys string) (Vault, error) {
	var v Vault
	if keys == "" {
		return v, nil
	}
	for text := range strings.SplitSeq(keys, ",") {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != SecretKeyBytes {
			return Vault{}, fmt.Errorf("a secret key is not %d bytes in base64", SecretKeyBytes)
		}
		made, err := newVaultKey(key)
		if err != nil {
			return Vault{}, err
		}
		v.keys = append(v.keys, made)
	}
	return v, nil
}

// newVaultKey derives id and encryption key, so that the id reveals nothing about the key.
func newVaultKey(key []byte) (made vaultKey, err error) {
	id, err := hkdf.Key(sha256.New, key, nil, "sluice vault key id", keyIDLength)
	if err != nil {
		return made, fmt.Errorf("derive the id of a secret key: %w", err)
	}
	copy(made.id[:], id)
	derived, err := hkdf.Key(sha256.New, key, nil, "sluice vault", SecretKeyBytes)
	if err != nil {
		return made, fmt.Errorf("derive a secret key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return made, fmt.Errorf("derive a secret key: %w", err)
	}
	made.box, err = cipher.NewGCM(block)
	return made, err
}

// HasKey reports whether the Vault can seal.
func (v Vault) HasKey() bool { return len(v.keys) > 0 }

func (v Vault) seal(use string, owner int64, secret []byte) ([]byte, error) {
	if !v.HasKey() {
		return nil, ErrNoSecretKey
	}
	key := v.keys[0]
	nonce := make([]byte, key.box.NonceSize())
	_, _ = rand.Read(nonce)
	sealed := append(key.id[:], nonce...)
	return key.box.Seal(sealed, nonce, secret, purpose(use, owner)), nil
}

func (v Vault) open(use string, owner int64, sealed []byte) (secret []byte, isStale bool, err error) {
	for i, key := range v.keys {
		rest, ok := bytes.CutPrefix(sealed, key.id[:])
		n := key.box.NonceSize()
		if !ok || len(rest) < n {
			continue
		}
		if secret, err := key.box.Open(nil, rest[:n], rest[n:], purpose(use, owner)); err == nil {
			return secret, i > 0, nil
		}
	}
	return nil, false, ErrClosed
}

// purpose binds a sealed secret to its row, so that it cannot be opened in another one.
func purpose(use string, owner int64) []byte {
	return binary.BigEndian.AppendUint64([]byte("sluice "+use+"\x00"), uint64(owner))
}

const sealedText = "sealed:" // begins no plain secret

// SealText seals a secret for a text column. An empty secret, and any secret of a Vault without a key, stays plain.
func (v Vault) SealText(use string, owner int64, secret string) (string, error) {
	if secret == "" || !v.HasKey() {
		return secret, nil
	}
	sealed, err := v.seal(use, owner, []byte(secret))
	if err != nil {
		return "", err
	}
	return v.SealedPrefix() + base64.RawURLEncoding.EncodeToString(sealed[keyIDLength:]), nil
}

// OpenText opens the result of SealText, which may be plain.
func (v Vault) OpenText(use string, owner int64, stored string) (string, error) {
	text, isSealed := strings.CutPrefix(stored, sealedText)
	if !isSealed {
		return stored, nil
	}
	keyID, rest, _ := strings.Cut(text, ":")
	sealed, err := hex.DecodeString(keyID)
	if err != nil {
		return "", ErrClosed
	}
	box, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return "", ErrClosed
	}
	secret, _, err := v.open(use, owner, append(sealed, box...))
	return string(secret), err
}

// SealedPrefix is the prefix of SealText's results for the first key; "" without a key.
func (v Vault) SealedPrefix() string {
	if !v.HasKey() {
		return ""
	}
	return sealedText + hex.EncodeToString(v.keys[0].id[:]) + ":"
}
