package rules

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRatesAreReadAndWrittenAsPeopleTypeThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"10/second":         10,
		"0.5/minute":        0.5 / 60,
		"1000/day":          1000.0 / 86400,
		"90/hour":           90.0 / 3600,
		"1000000000/second": 1e9,
		"0.000001/second":   1e-6,
	} {
		rate, unit, err := ParseRate(text)
		if err != nil || rate != want {
			t.Errorf("%s is read as %v, %v; want %v", text, rate, err, want)
		}
		if got := FormatRate(rate, unit); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
}

func TestRatesThatAreNotANumberPerUnitAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "10", "/day", "10/", "10/week", "10/s", "10/Day", "10 / day", "10/day ", "-1/day", "+1/day", "1e3/day",
		"0x10/day", "1_000/day", ".5/day", "5./day", "1.2.3/day", "Inf/day", "NaN/day", "1/2/day",
		strings.Repeat("9", 400) + "/day",
	} {
		if rate, unit, err := ParseRate(text); err == nil {
			t.Errorf("%q is read as %v per %s, want an error", text, rate, unit)
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
	// Doubles just below 2 lie twice as near to each other as the numbers per hour that stand for
	// them, so some of them are no quotient.
	rate := 2.0
	for range 1000 {
		rate = math.Nextafter(rate, 0)
		if strings.HasSuffix(FormatRate(rate, PerHour), "/second") {
			if text := describeRate(rate, PerHour); !strings.HasSuffix(text, "per second (shown per hour)") {
				t.Errorf("%v per hour is described as %s, which hides its unit", rate, text)
			}
			return
		}
	}
	t.Error("no such rate was found")
}

func TestLimitsAreDescribedAsPeopleSayThem(t *testing.T) {
	t.Parallel()
	if got, want := DescribeLimit(10, PerSecond, 50), "10 per second, bursts to 50"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := DescribeLimit(1000.0/86400, PerDay, 50), "1000 per day, bursts to 50"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
