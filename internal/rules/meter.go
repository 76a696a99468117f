package rules

import (
	"fmt"
	"strings"

	"golang.org/x/text/currency"
)

// Meter names what a rule counts; "" is Requests.
type Meter string

// Requests is the meter of rules that name none, and of a check's cost.
const Requests Meter = "requests"

const maxMeterLength = 32

// MaxMeters caps the meters of one check's costs.
const MaxMeters = 8

// Charge says when a rule charges a check.
type Charge string

// ChargeBefore denies a check whose cost is not there; ChargeAfter passes it while anything is left, and charges as
// much as fits.
const (
	ChargeBefore Charge = "before"
	ChargeAfter  Charge = "after"
)

// Word returns the meter's name.
func (m Meter) Word() string {
	if m == "" {
		return string(Requests)
	}
	return string(m)
}

// ParseMeter reads a Word; the error follows the field's name.
func ParseMeter(word string) (Meter, error) {
	if word == string(Requests) {
		return "", nil
	}
	wrong := word == "" || len(word) > maxMeterLength || word[0] < 'a' || word[0] > 'z'
	for i := range len(word) {
		c := word[i]
		wrong = wrong || (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_'
	}
	if wrong {
		return "", fmt.Errorf("must be a lower-case letter and up to %d lower-case letters, digits and '_', such as "+
			"requests, input_tokens or usd, got %q", maxMeterLength-1, word)
	}
	return Meter(word), nil
}

// NameByMeter names a new rule after its meter, so that rules of one pattern that count different things need no names.
func (r *Rule) NameByMeter() {
	if r.Name == "" {
		r.Name = string(r.Meter)
	}
}

// unit follows an amount: nothing for requests, " USD" for a currency of ISO 4217, else the meter in words.
func (m Meter) unit() string {
	if m == "" {
		return ""
	}
	if code, err := currency.ParseISO(string(m)); err == nil {
		return " " + code.String()
	}
	return " " + strings.ReplaceAll(string(m), "_", " ")
}

// Charge returns the word for ChargedAfter.
func (r *Rule) Charge() Charge {
	if r.ChargedAfter {
		return ChargeAfter
	}
	return ChargeBefore
}

// CanBeChargedAfter reports whether rules of the algorithm can have ChargeAfter.
func (a Algorithm) CanBeChargedAfter() bool {
	return a == TokenBucket || a == FixedWindow || a == SlidingWindow
}

// WrongMeterChange returns the mistake in a change of a stored rule to another meter, whose buckets it would keep.
func (r *Rule) WrongMeterChange(before *Rule) (errs FieldErrors) {
	errs.AddIf(r.Meter != before.Meter, "meter", fmt.Sprintf(
		"must stay %s: the buckets of a rule count one thing. Make another rule for %s", before.Meter.Word(),
		r.Meter.Word()))
	return errs
}
