package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// A device token is a nonce and its HMAC-SHA-256, in unpadded base64url. The key is the account's password
// hash: that needs no table and no secret of the process, and a password change makes strangers of all
// devices. The hash cannot be searched by way of a token, because its 128-bit salt is as secret as it is.
const (
	nonceLength  = 16
	deviceLength = nonceLength + sha256.Size
)

func newDevice(account AccountID, passwordHash string) string {
	nonce := make([]byte, nonceLength, deviceLength)
	_, _ = rand.Read(nonce) // it never fails; see its documentation
	return base64.RawURLEncoding.EncodeToString(append(nonce, signDevice(nonce, account, passwordHash)...))
}

// deviceLimits are those of attempts from a device, if the token was made for the account. It may be in any
// network: only who has signed in before has it.
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
