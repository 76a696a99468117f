package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// tokenLength is that of 32 bytes in unpadded base64url.
const tokenLength = 43

// newToken makes up the secret of a session or an invitation. Its 256 random bits cannot be searched, so
// a plain digest of it may be stored.
func newToken() (token string, digest Digest) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails; see its documentation
	token = base64.RawURLEncoding.EncodeToString(random[:])
	return token, digestOf(token)
}

func digestOf(token string) Digest { return sha256.Sum256([]byte(token)) }
