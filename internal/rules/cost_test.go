package rules

import (
	"errors"
	"testing"
)

func TestCostsAreReadExactly(t *testing.T) {
	t.Parallel()
	const token = 1_000_000
	for number, want := range map[string]int64{
		"0": 0, "-0": 0, "-0.0e5": 0, "0e999999999999": 0, "1": token, "1.0": token,
		"0.1": 100_000, "0.000001": 1, "1e-6": 1, "1E-06": 1, "10e-7": 1, "1.5e+1": 15 * token,
		"0.10000000000000000000": 100_000, "123456789.654321": 123_456_789_654_321,
		"1e9": MaxCost, "1000000000.0": MaxCost, "0.000000001e18": MaxCost, "100000000000e-2": MaxCost,
	} {
		if got, err := ParseCost(number); err != nil || got != want {
			t.Errorf("%s is %d millionths, %v; want %d", number, got, err, want)
		}
	}
	for number, want := range map[string]error{
		"-1": ErrNegativeCost, "-1e-9": ErrNegativeCost, "1e-7": ErrCostDecimals, "0.1234567": ErrCostDecimals,
		"1e-99999999999999999999": ErrCostDecimals, "1000000000.0000001": ErrCostDecimals,
		"1000000001": ErrCostTooLarge, "1000000000.000001": ErrCostTooLarge, "1e10": ErrCostTooLarge,
		"9999999999": ErrCostTooLarge, "1e99999999999999999999": ErrCostTooLarge, "1e2147483648": ErrCostTooLarge,
		"99999999999999999999999": ErrCostTooLarge,
	} {
		if got, err := ParseCost(number); !errors.Is(err, want) {
			t.Errorf("%s is %d millionths, %v; want %v", number, got, err, want)
		}
	}
}
