package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

type value struct {
	kind   string                  // placeholder in help; choices are separated by |
	set    func(text string) error // parses a nonempty text; the error completes "… is not"
	show   func() string           // for logs, without secrets
	secret bool                    // errors must not contain the text
}

func text(at *string, kind string) value {
	return checked(at, kind, "", func(string) bool { return true })
}

func secretText(at *Secret) value {
	v := text((*string)(at), "PASSWORD")
	v.show, v.secret = at.String, true
	return v
}

func secretKeys(at *Secret) value {
	v := checked((*string)(at), "KEYS", "32 bytes in base64, or several such keys separated by commas",
		func(s string) bool {
			_, err := auth.NewVault(s)
			return err == nil
		})
	v.show, v.secret = at.String, true
	return v
}

func word(at *string, words ...string) value {
	return checked(at, strings.Join(words, "|"), "one of "+strings.Join(words, ", "), func(s string) bool {
		return slices.Contains(words, s)
	})
}

var keyPrefixes = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{1,32}$`)

// keyPrefix excludes braces, which would move keys to other slots of a Redis Cluster.
func keyPrefix(at *string) value {
	return checked(at, "PREFIX", "at most 32 letters, digits, underscores, dashes, dots and colons",
		keyPrefixes.MatchString)
}

func mailFrom(at *string) value {
	return checked(at, "ADDRESS", "an e-mail address such as sluice@example.com or Sluice <sluice@example.com>",
		func(s string) bool {
			_, err := mail.ParseAddress(s)
			return err == nil
		})
}

func address(at *string) value {
	return checked(at, "HOST:PORT", "an address such as :8080, 127.0.0.1:8080 or [::1]:8080", func(s string) bool {
		_, port, err := net.SplitHostPort(s)
		_, portErr := strconv.ParseUint(port, 10, 16)
		return err == nil && portErr == nil
	})
}

func webURL(at *string) value {
	form := "a URL such as https://limits.example.com, without a query and credentials"
	v := checked(at, "URL", form, func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
			u.RawQuery == "" && u.Fragment == ""
	})
	set := v.set
	v.set = func(s string) error { return set(strings.TrimRight(s, "/")) }
	return v
}

func connURL(at *ConnURL, schemes ...string) value {
	form := "a URL that begins with " + strings.Join(schemes, ":// or ") + "://"
	v := checked((*string)(at), "URL", form, func(s string) bool {
		scheme, rest, _ := strings.Cut(s, "://")
		return slices.Contains(schemes, scheme) && rest != ""
	})
	v.show, v.secret = at.String, true
	return v
}

func checked(at *string, kind, form string, ok func(string) bool) value {
	return value{kind: kind, show: func() string { return *at }, set: func(s string) error {
		if !ok(s) {
			return errors.New(form)
		}
		*at = s
		return nil
	}}
}

const toggleKind = "bool" // to pflag the flag alone is true

func toggle(at *bool) value {
	return parsed(at, toggleKind, "true or false", strconv.ParseBool, strconv.FormatBool)
}

func duration(at *time.Duration, least, most time.Duration) value {
	form := fmt.Sprintf("a duration with its unit from %s to %s, such as 50ms, 1s or 2m", short(least), short(most))
	return parsed(at, "DURATION", form, ranged(time.ParseDuration, least, most), short)
}

func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func count(at *int, least, most int) value {
	form := fmt.Sprintf("a whole number from %d to %d", least, most)
	return parsed(at, "N", form, ranged(strconv.Atoi, least, most), strconv.Itoa)
}

func level(at *slog.Level) value {
	words := []string{"debug", "info", "warn", "error"}
	return parsed(at, strings.Join(words, "|"), "one of "+strings.Join(words, ", "),
		func(s string) (l slog.Level, err error) {
			if !slices.Contains(words, s) {
				return 0, strconv.ErrSyntax
			}
			return l, l.UnmarshalText([]byte(s))
		}, func(l slog.Level) string { return strings.ToLower(l.String()) })
}

func permissions(at *[]auth.Permission, known ...auth.Permission) value {
	form := "a list of " + join(known, ", ") + ", separated by commas"
	return parsed(at, "LIST", form, func(s string) (list []auth.Permission, err error) {
		for _, name := range splitList(s) {
			p := auth.Permission(name)
			if !slices.Contains(known, p) {
				return nil, strconv.ErrSyntax
			}
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
		return list, nil
	}, func(list []auth.Permission) string { return join(list, ",") })
}

func networks(at *[]netip.Prefix) value {
	form := "a list of networks such as 10.1.0.0/16 or addresses, separated by commas"
	return parsed(at, "LIST", form, func(s string) ([]netip.Prefix, error) {
		list, wrong := auth.ParseNetworks(splitList(s))
		if len(wrong) > 0 {
			return nil, strconv.ErrSyntax
		}
		return list, nil
	}, func(list []netip.Prefix) string { return join(list, ",") })
}

func parsed[T any](at *T, kind, form string, parse func(string) (T, error), format func(T) string) value {
	return value{kind: kind, show: func() string { return format(*at) }, set: func(s string) error {
		v, err := parse(s)
		if err != nil {
			return errors.New(form)
		}
		*at = v
		return nil
	}}
}

func list(at *[]string, kind string) value {
	show := func() string { return strings.Join(*at, ",") }
	return value{kind: kind, show: show, set: func(s string) error {
		*at = splitList(s)
		return nil
	}}
}

func splitList(s string) []string {
	list := strings.Split(s, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func several(at *[]string, kind string) value {
	show := func() string { return strings.Join(*at, " ") }
	return value{kind: kind, show: show, set: func(s string) error {
		*at = strings.Split(s, "\x00")
		return nil
	}}
}

func ranged[T int | time.Duration](parse func(string) (T, error), least, most T) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parse(s)
		if err == nil && (v < least || v > most) {
			err = strconv.ErrRange
		}
		return v, err
	}
}

func join[T any](list []T, separator string) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = fmt.Sprint(one)
	}
	return strings.Join(words, separator)
}
