package gateway

import (
	"net/url"
	"strconv"
	"strings"
)

// costOf returns what a request costs, in millionths.
func (m *Mapping) costOf(r *Request, query string) (int64, error) {
	cost := m.document.Cost
	switch {
	case cost == nil:
		return m.cost, nil
	case cost.Header != "":
		value, err := one(r, cost.Header)
		if err != nil || len(value) == 0 {
			return m.cost, err
		}
		return parseCost(string(value), "The header "+cost.Header)
	case cost.Query != "":
		return largest(query, cost.Query, m.cost)
	}
	return m.cost, nil
}

// largest returns the largest value of a parameter in a query, at least the given one. Upstreams may read the first or the
// last of several.
func largest(query, parameter string, least int64) (int64, error) {
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
			decoded = value // which is refused
		}
		if decoded == "" {
			continue
		}
		cost, err := parseCost(decoded, "The parameter "+parameter)
		if err != nil {
			return 0, err
		}
		least = max(least, cost)
	}
	return least, nil
}

// parseCost reads a decimal number exactly. Other spellings of numbers are refused: an upstream may read them otherwise.
func parseCost(text, what string) (int64, error) {
	whole, decimals, _ := strings.Cut(text, ".")
	digits := whole + decimals
	if whole == "" || len(decimals) > 6 || strings.Trim(digits, "0123456789") != "" {
		return 0, refuse(what, " must be a number such as 5 or 0.25, with at most 6 decimals.")
	}
	if len(strings.TrimLeft(whole, "0")) > len("1000000000") {
		return 0, tooMuch(what)
	}
	millionths, err := strconv.ParseInt(digits+"000000"[:6-len(decimals)], 10, 64)
	if err != nil || millionths > maxCost*token {
		return 0, tooMuch(what)
	}
	return millionths, nil
}

func tooMuch(what string) error { return refuse(what, " must be at most ", strconv.Itoa(maxCost), ".") }
