package config

import (
	"fmt"
	"net/url"
	"strings"
)

// ConnURL says where a store is and how to sign in there. Printed, logged or encoded as text it
// shows no password; string(u) is the whole URL.
type ConnURL string

const hidden = "xxxxx"

// String returns the URL with its passwords replaced by xxxxx.
//
// It reads the URL more loosely than url.Parse does, which knows no list of hosts: whatever stands
// before the last @ may be a password with characters that should have been percent-encoded.
func (u ConnURL) String() string {
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok {
		if u == "" {
			return ""
		}
		return "(unreadable URL)"
	}
	user := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		name, _, hasPassword := strings.Cut(rest[:at], ":")
		user, rest = name+"@", rest[at+1:]
		if hasPassword {
			user = name + ":" + hidden + "@"
		}
	}
	hosts, query, hasQuery := strings.Cut(rest, "?")
	if hasQuery {
		hosts += "?" + hidePasswords(query)
	}
	return scheme + "://" + user + hosts
}

// hidePasswords replaces parameters such as password, sslpassword and sentinel_password.
func hidePasswords(query string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		return hidden
	}
	secrets := 0
	for name := range values {
		if strings.Contains(strings.ToLower(name), "password") {
			values.Set(name, hidden)
			secrets++
		}
	}
	if secrets == 0 {
		return query // in the order it was written
	}
	return values.Encode()
}

// GoString keeps %#v from showing the password.
func (u ConnURL) GoString() string { return fmt.Sprintf("%q", u.String()) }

// MarshalText keeps encoders and log handlers from showing the password.
func (u ConnURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
