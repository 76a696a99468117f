package config

import (
	"fmt"
	"net/url"
	"strings"
)

// ConnURL shows no password when it is printed, logged or encoded; string(u) is the whole URL.
type ConnURL string

const hidden = "xxxxx"

// String replaces passwords by xxxxx: everything before the last @, even characters that should have been
// percent-encoded.
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
		return query // in the original order
	}
	return values.Encode()
}

// GoString hides the password from %#v.
func (u ConnURL) GoString() string { return fmt.Sprintf("%q", u.String()) }

// MarshalText hides the password from encoders and log handlers.
func (u ConnURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

func (p *parser) putPasswords(c *Config) {
	for _, password := range []struct {
		secret *Secret
		option string
		url    *ConnURL
		of     string
		put    func(u ConnURL, password string) (with ConnURL, ok bool)
	}{
		{
			&c.databasePassword, "database-password", &c.DatabaseURL, "database-url",
			func(u ConnURL, password string) (ConnURL, bool) {
				return u.withParameter("password", password), !u.hasPassword() && !u.hasParameter("password")
			},
		},
		{
			&c.redisPassword, "redis-password", &c.RedisURL, "redis-url",
			func(u ConnURL, password string) (ConnURL, bool) {
				return u.withPassword(password), !u.hasPassword()
			},
		},
		{
			&c.sentinelPassword, "redis-sentinel-password", &c.RedisURL, "redis-url",
			func(u ConnURL, password string) (ConnURL, bool) {
				return u.withParameter("sentinel_password", password), !u.hasParameter("sentinel_password")
			},
		},
	} {
		if *password.secret == "" {
			continue
		}
		from := p.given[password.option].from
		with, ok := password.put(*password.url, string(*password.secret))
		switch {
		case *password.url == "":
			p.complain("%s has no use without --%s", from, password.of)
		case !ok:
			p.complain("%s and %s both have a password; leave one out", from, p.given[password.of].from)
		}
		*password.url, *password.secret = with, ""
	}
}

func (u ConnURL) split() (scheme, user, rest string) {
	scheme, rest, _ = strings.Cut(string(u), "://")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		return scheme, rest[:at], rest[at+1:]
	}
	return scheme, "", rest
}

func (u ConnURL) hasPassword() bool {
	_, user, _ := u.split()
	return strings.Contains(user, ":")
}

func (u ConnURL) hasParameter(name string) bool {
	_, _, rest := u.split()
	_, query, _ := strings.Cut(rest, "?")
	values, _ := url.ParseQuery(query)
	return values.Has(name)
}

func (u ConnURL) withPassword(password string) ConnURL {
	scheme, user, rest := u.split()
	return ConnURL(scheme + "://" + user + ":" + url.PathEscape(password) + "@" + rest)
}

func (u ConnURL) withParameter(name, value string) ConnURL {
	separator := "?"
	if strings.Contains(string(u), "?") {
		separator = "&"
	}
	return u + ConnURL(separator+name+"="+url.QueryEscape(value))
}

// Secret is never printed, logged or encoded.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText hides the secret from encoders and log handlers.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
