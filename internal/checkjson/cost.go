package checkjson

import (
	"errors"
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
)

const maxCost = 1_000_000_000 * enforce.Token

var (
	errNegativeCost = errors.New("must not be negative")
	errCostDecimals = errors.New("must have at most 6 decimals")
	errCostTooLarge = errors.New("must be at most 1000000000")
)

// parseCost reads a JSON number exactly, without a float.
func parseCost(number string) (enforce.Tokens, error) {
	number, negative := strings.CutPrefix(number, "-")
	mantissa, exponent := cutExponent(number)
	whole, decimals, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+decimals, "0")
	if digits == "" {
		return 0, nil // -0 too
	}
	if negative {
		return 0, errNegativeCost
	}
	// The cost is digits × 10^shift millionths, the last digit not 0.
	significant := strings.TrimRight(digits, "0")
	shift := exponent - len(decimals) + 6 + len(digits) - len(significant)
	switch {
	case shift < 0:
		return 0, errCostDecimals
	case len(significant)+shift > len("1000000000000000"):
		return 0, errCostTooLarge
	}
	millionths, err := strconv.ParseInt(significant+"000000000000000"[:shift], 10, 64)
	if err != nil || enforce.Tokens(millionths) > maxCost {
		return 0, errCostTooLarge
	}
	return enforce.Tokens(millionths), nil
}

// cutExponent splits a JSON number. It caps the exponent beyond the digits of any body, so that it cannot overflow.
func cutExponent(number string) (mantissa string, exponent int) {
	const beyond = 1 << 30
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return number, 0
	}
	exponent, err := strconv.Atoi(number[i+1:])
	switch {
	case exponent > beyond || err != nil && number[i+1] != '-':
		exponent = beyond
	case exponent < -beyond || err != nil:
		exponent = -beyond
	}
	return number[:i], exponent
}
