package rules

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
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
