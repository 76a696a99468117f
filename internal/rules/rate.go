package rules

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseRate reads a decimal number per unit: 1000/day, 10/second, 0.5/minute. Short forms, signs and exponents are
// refused. The result is in tokens per second: the float64 quotient of the number and the unit's length, as any other
// program computes it. The range is not checked.
func ParseRate(text string) (perSecond float64, unit RateUnit, err error) {
	number, name, _ := strings.Cut(text, "/")
	unit = RateUnit(name)
	if long, ok := shortUnits[name]; ok {
		unit = long
	}
	whole, decimals, pointed := strings.Cut(number, ".")
	if unit.seconds() == 0 || !isDigits(whole) || (pointed && !isDigits(decimals)) {
		return 0, "", fmt.Errorf("must be a number per second, minute, hour or day, such as 1000/day or 0.5/minute, "+
			"got %q", text)
	}
	perUnit, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, "", fmt.Errorf("must be a smaller number, got one of %d digits", len(number))
	}
	return perUnit / unit.seconds(), unit, nil
}

// shortUnits are the names that the UI shows.
var shortUnits = map[string]RateUnit{"s": PerSecond, "min": PerMinute, "h": PerHour, "d": PerDay}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// FormatRate formats a rate so that ParseRate returns exactly the same float64: the shortest number per its unit, or
// per second if no number per that unit is exact.
func FormatRate(perSecond float64, unit RateUnit) string {
	number, unit := ratePerUnit(perSecond, unit)
	return number + "/" + string(unit)
}

func grouped(number string) string {
	whole, decimals, pointed := strings.Cut(number, ".")
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if pointed {
		whole += "." + decimals
	}
	return whole
}

// DescribeRate describes a rate for people. Different rates, and different units of one rate, give different texts.
func DescribeRate(perSecond float64, unit RateUnit) string {
	number, of := ratePerUnit(perSecond, unit)
	text := grouped(number) + " per " + string(of)
	if of != unit {
		text += " (shown per " + string(unit) + ")"
	}
	return text
}

func ratePerUnit(perSecond float64, unit RateUnit) (number string, of RateUnit) {
	perUnit := perSecond * unit.seconds()
	for digits := 1; digits <= 17; digits++ {
		text := strconv.FormatFloat(perUnit, 'e', digits-1, 64)
		rounded, err := strconv.ParseFloat(text, 64)
		if err == nil && rounded/unit.seconds() == perSecond {
			return strconv.FormatFloat(rounded, 'f', -1, 64), unit
		}
	}
	return strconv.FormatFloat(perSecond, 'f', -1, 64), PerSecond
}
