package gateway

import (
	"math"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

type cost struct {
	meter         rules.Meter
	header, query string
	usual         int64 // the default, in millionths
}

func (c *Cost) compile(meter rules.Meter) cost {
	compiled := cost{meter: meter, usual: token}
	if c == nil {
		return compiled
	}
	if compiled.query = c.Query; c.Header != "" {
		compiled.header = http.CanonicalHeaderKey(c.Header)
	}
	if c.Default != nil {
		compiled.usual = int64(math.Round(*c.Default * token))
	}
	return compiled
}

// unusable: a cost was sent that is no number.
func (c *cost) of(r *Request, query string) (millionths int64, unusable bool, err error) {
	switch {
	case c.header != "":
		value, _, err := one(r, c.header)
		if err != nil || len(value) == 0 {
			return c.usual, false, err
		}
		if millionths, ok := parseCost(string(value)); ok {
			return millionths, false, nil
		}
		return c.usual, true, nil
	case c.query != "":
		millionths, unusable = largest(query, c.query, c.usual)
		return millionths, unusable, nil
	}
	return c.usual, false, nil
}

// largest counts, because upstreams read different ones of several values.
func largest(query, parameter string, least int64) (millionths int64, unusable bool) {
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name != parameter {
			decoded, err := url.QueryUnescape(name)
			if err != nil || decoded != parameter {
				continue
			}
		}
		decoded, err := url.QueryUnescape(value)
		if err != nil {
			decoded = value // no number either
		}
		if decoded == "" {
			continue
		}
		if cost, ok := parseCost(decoded); ok {
			least = max(least, cost)
		} else {
			unusable = true
		}
	}
	return least, unusable
}

// parseCost rounds up to millionths. Exponents and signs are no numbers here, because an upstream may read them
// differently.
func parseCost(text string) (millionths int64, ok bool) {
	whole, decimals, _ := strings.Cut(text, ".")
	if whole == "" || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, false
	}
	const most = 6 // decimals
	rest := ""
	if len(decimals) > most {
		decimals, rest = decimals[:most], strings.Trim(decimals[most:], "0")
	}
	millionths, err := rules.ParseCost(whole + "." + decimals + strings.Repeat("0", most-len(decimals)))
	if err != nil {
		return maxCost * token, true
	}
	if rest != "" {
		millionths++
	}
	return millionths, true
}
