package oidc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
)

// FlowLife bounds the time for a sign-in at the provider.
const FlowLife = 10 * time.Minute

// flow is the state of a sign-in, in an encrypted cookie: a provider's answer is useless in another browser.
type flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"` // PKCE
	Purpose
	Until int64 `json:"u"` // Unix seconds
}

func (f *flow) began() time.Time { return time.Unix(f.Until, 0).Add(-FlowLife) }

var errFlow = errors.New("the browser has no sign-in under way at this provider, or it is older than 10 minutes")

func (s *Settings) box() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(s.ClientSecret), []byte(s.Issuer+"\x00"+s.ClientID),
		"sluice sign-in flow "+s.Slug, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (p *provider) seal(f flow) (string, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, p.box.NonceSize(), p.box.NonceSize()+len(text)+p.box.Overhead())
	_, _ = rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(p.box.Seal(nonce, nonce, text, nil)), nil
}

func (p *provider) open(sealed string, now time.Time) (f flow, err error) {
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(text) < p.box.NonceSize() {
		return flow{}, errFlow
	}
	plain, err := p.box.Open(nil, text[:p.box.NonceSize()], text[p.box.NonceSize():], nil)
	if err != nil || json.Unmarshal(plain, &f) != nil || now.Unix() > f.Until {
		return flow{}, errFlow
	}
	return f, nil
}

func random() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:])
	return base64.RawURLEncoding.EncodeToString(bits[:])
}
