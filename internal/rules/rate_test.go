package rules

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRatesThatAreNotANumberPerUnitAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"10", "10/S", "10/m", "10/Day", "10 / day", "10/day ", "1_000/day", ".5/day", strings.Repeat("9", 400) + "/day",
	} {
		if rate, unit, err := ParseRate(text); err == nil {
			t.Errorf("%q is read as %v per %s, want an error", text, rate, unit)
		}
	}
}

func TestRatesCanHaveTheUnitsThatTheUIShows(t *testing.T) {
	t.Parallel()
	for short, long := range map[string]string{
		"10/s": "10/second", "60/min": "60/minute", "0.5/h": "0.5/hour", "1000/d": "1000/day",
	} {
		got, unit, err := ParseRate(short)
		want, of, _ := ParseRate(long)
		if err != nil || got != want || unit != of {
			t.Errorf("%s is %v per %s, %v; want %v per %s", short, got, unit, err, want, of)
		}
	}
}

func TestEveryRateIsReadBackExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(MinRate, MaxRate).Draw(t, "rate")
		unit := rapid.SampledFrom([]RateUnit{PerSecond, PerMinute, PerHour, PerDay}).Draw(t, "unit")
		text := FormatRate(rate, unit)
		got, of, err := ParseRate(text)
		if err != nil || got != rate || (of != unit && of != PerSecond) {
			t.Fatalf("%v per %s is written as %s and read as %v, %s, %v", rate, unit, text, got, of, err)
		}
	})
}

func TestARateWithoutANumberPerItsUnitIsWrittenPerSecond(t *testing.T) {
	t.Parallel()
	// Doubles just below 2 are twice as dense as the numbers per hour, so some of them are the quotient of none.
	rate := 2.0
	for range 1000 {
		rate = math.Nextafter(rate, 0)
		if strings.HasSuffix(FormatRate(rate, PerHour), "/second") {
			if text := DescribeRate(rate, PerHour); !strings.HasSuffix(text, "per second (shown per hour)") {
				t.Errorf("%v per hour is described as %s, which hides its unit", rate, text)
			}
			return
		}
	}
	t.Error("no such rate was found")
}
