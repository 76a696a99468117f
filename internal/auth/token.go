package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

const tokenLength = 43

// newToken creates 256 random bits, so that a plain digest may be stored.
func newToken() (token string, digest Digest) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(random[:])
	return token, digestOf(token)
}

func digestOf(token string) Digest { return sha256.Sum256([]byte(token)) }
