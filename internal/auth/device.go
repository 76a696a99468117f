package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// A device token is a nonce and its HMAC-SHA-256 under the account's password hash: no table or process secret is
// needed, and a password change invalidates all devices. A token does not help to guess the hash, because the 128-bit
// salt is secret.
const (
	nonceLength  = 16
	deviceLength = nonceLength + sha256.Size
)

func newDevice(account AccountID, passwordHash string) string {
	nonce := make([]byte, nonceLength, deviceLength)
	_, _ = rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(append(nonce, signDevice(nonce, account, passwordHash)...))
}

func deviceLimits(token string, account AccountID, passwordHash string) ([]Limit, bool) {
	device, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(device) != deviceLength {
		return nil, false
	}
	nonce, signature := device[:nonceLength], device[nonceLength:]
	if !hmac.Equal(signature, signDevice(nonce, account, passwordHash)) {
		return nil, false
	}
	return []Limit{{Counter{subjectOf("device", device), anywhere}, Tight}}, true
}

func signDevice(nonce []byte, account AccountID, passwordHash string) []byte {
	mac := hmac.New(sha256.New, []byte(passwordHash))
	mac.Write(binary.BigEndian.AppendUint64([]byte("sluice device"), uint64(account)))
	mac.Write(nonce)
	return mac.Sum(nil)
}
