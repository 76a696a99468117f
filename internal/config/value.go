package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// value is the place of one option in a Config, and knows the option's form.
type value interface {
	// set reads a text that is not empty. Its error completes the sentence "… is not".
	set(text string) error
	// String is what is set, fit for a log: no secrets.
	String() string
	// placeholder stands for the value in help; "" if the flag alone says everything.
	placeholder() string
}

// text is any words.
type text struct {
	at   *string
	word string
}

func (v text) set(s string) error  { *v.at = s; return nil }
func (v text) String() string      { return *v.at }
func (v text) placeholder() string { return v.word }

// keyPrefix is what the keys of one deployment begin with. Braces would move them to other slots of a
// Redis Cluster.
type keyPrefix struct{ at *string }

func (v keyPrefix) set(s string) error {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return errKeyPrefix
		}
	}
	if len(s) > maxKeyPrefix {
		return errKeyPrefix
	}
	*v.at = s
	return nil
}
func (v keyPrefix) String() string    { return *v.at }
func (keyPrefix) placeholder() string { return "PREFIX" }

const maxKeyPrefix = 32

var errKeyPrefix = fmt.Errorf("at most %d letters, digits, underscores, dashes, dots and colons", maxKeyPrefix)

// word is one of several.
type word struct {
	at    *string
	words []string
}

func (v word) set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("one of %s", strings.Join(v.words, ", "))
	}
	*v.at = s
	return nil
}
func (v word) String() string      { return *v.at }
func (v word) placeholder() string { return strings.Join(v.words, "|") }

// toggle is on or off.
type toggle struct{ at *bool }

func (v toggle) set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("true or false")
	}
	*v.at = on
	return nil
}
func (v toggle) String() string    { return strconv.FormatBool(*v.at) }
func (toggle) placeholder() string { return "" }

// duration is a time span with its unit.
type duration struct {
	at       *time.Duration
	min, max time.Duration
}

func (v duration) set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < v.min || d > v.max {
		return fmt.Errorf("a duration with its unit from %s to %s, such as 50ms, 1s or 2m",
			short(v.min), short(v.max))
	}
	*v.at = d
	return nil
}
func (v duration) String() string    { return short(*v.at) }
func (duration) placeholder() string { return "DURATION" }

// short leaves out what time.Duration adds to whole minutes and hours: 1h rather than 1h0m0s.
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

// count is a whole number.
type count struct {
	at       *int
	min, max int
}

func (v count) set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		return fmt.Errorf("a whole number from %d to %d", v.min, v.max)
	}
	*v.at = n
	return nil
}
func (v count) String() string    { return strconv.Itoa(*v.at) }
func (count) placeholder() string { return "N" }

// address is where to listen.
type address struct{ at *string }

func (v address) set(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New("an address such as :8080, 127.0.0.1:8080 or [::1]:8080")
	}
	*v.at = s
	return nil
}
func (v address) String() string    { return *v.at }
func (address) placeholder() string { return "HOST:PORT" }

// level is the severity of log events.
type level struct{ at *slog.Level }

var levels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func (v level) set(s string) error {
	for _, known := range levels {
		if s == strings.ToLower(known.String()) {
			*v.at = known
			return nil
		}
	}
	return errors.New("one of debug, info, warn, error")
}
func (v level) String() string    { return strings.ToLower(v.at.String()) }
func (level) placeholder() string { return "debug|info|warn|error" }

// permissions are several of the things an API key may do.
type permissions struct {
	at    *[]rules.Permission
	known []rules.Permission
}

func (v permissions) set(s string) error {
	var list []rules.Permission
	for name := range strings.SplitSeq(s, ",") {
		p := rules.Permission(strings.TrimSpace(name))
		if !slices.Contains(v.known, p) {
			return fmt.Errorf("a list of %s, separated by commas", join(v.known, ", "))
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	*v.at = list
	return nil
}
func (v permissions) String() string    { return join(*v.at, ",") }
func (permissions) placeholder() string { return "LIST" }

// networks are several networks or addresses.
type networks struct{ at *[]netip.Prefix }

func (v networks) set(s string) error {
	var list []netip.Prefix
	for text := range strings.SplitSeq(s, ",") {
		text = strings.TrimSpace(text)
		if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
			ip = ip.Unmap()
			list = append(list, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil || network.Addr().Is4In6() {
			return errors.New("a list of networks such as 10.1.0.0/16 or addresses, separated by commas")
		}
		list = append(list, network.Masked())
	}
	*v.at = list
	return nil
}

func (v networks) String() string {
	words := make([]string, len(*v.at))
	for i, network := range *v.at {
		words[i] = network.String()
	}
	return strings.Join(words, ",")
}
func (networks) placeholder() string { return "LIST" }

func join(list []rules.Permission, separator string) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = string(p)
	}
	return strings.Join(words, separator)
}
