package rules

import (
	"errors"
	"strconv"
	"strings"
)

// MaxCost is the highest cost of a check, in millionths of a token.
const MaxCost = 1_000_000_000 * 1_000_000

// ErrNegativeCost, ErrCostDecimals and ErrCostTooLarge are the errors of ParseCost.
var (
	ErrNegativeCost = errors.New("must not be negative")
	ErrCostDecimals = errors.New("must have at most 6 decimals")
	ErrCostTooLarge = errors.New("must be at most 1000000000")
)

// ParseCost reads a JSON number of tokens as millionths, exactly, without a float.
func ParseCost(number string) (millionths int64, err error) {
	number, negative := strings.CutPrefix(number, "-")
	mantissa, exponent := cutExponent(number)
	whole, decimals, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+decimals, "0")
	if digits == "" {
		return 0, nil // -0 too
	}
	if negative {
		return 0, ErrNegativeCost
	}
	// The cost is digits × 10^shift millionths, the last digit not 0.
	significant := strings.TrimRight(digits, "0")
	shift := exponent - len(decimals) + 6 + len(digits) - len(significant)
	switch {
	case shift < 0:
		return 0, ErrCostDecimals
	case len(significant)+shift > len("1000000000000000"):
		return 0, ErrCostTooLarge
	}
	millionths, err = strconv.ParseInt(significant+"000000000000000"[:shift], 10, 64)
	if err != nil || millionths > MaxCost {
		return 0, ErrCostTooLarge
	}
	return millionths, nil
}

// cutExponent splits a JSON number, and caps the exponent beyond the digits of any body against overflow.
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
