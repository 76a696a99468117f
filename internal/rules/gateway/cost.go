package gateway

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/rules"
)

// costOf returns the cost in millionths of a token.
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

// largest returns the largest value of a query parameter, at least the given one, because upstreams differ in which of
// several they read.
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
			decoded = value // refused below
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

// parseCost reads a decimal number exactly. It refuses exponents and signs, which an upstream may read differently.
func parseCost(text, what string) (int64, error) {
	whole, decimals, _ := strings.Cut(text, ".")
	if whole == "" || len(decimals) > 6 || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, refuse(what, " must be a number such as 5 or 0.25, with at most 6 decimals.")
	}
	millionths, err := rules.ParseCost(text)
	if err != nil {
		return 0, refuse(what, " must be at most ", strconv.Itoa(maxCost), ".")
	}
	return millionths, nil
}
