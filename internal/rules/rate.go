package rules

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseRate reads a decimal number per unit, such as 0.5/minute, as tokens per second: the float64 quotient, as any
// other program computes it. The range is not checked.
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

var shortUnits = map[string]RateUnit{"s": PerSecond, "min": PerMinute, "h": PerHour, "d": PerDay}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// FormatRate formats the shortest number that ParseRate reads as exactly this rate, per second if none per the unit is
// exact.
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

// DescribeRate describes a rate for people, so that different ones, and different units, differ.
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
