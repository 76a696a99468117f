package rules

import (
	"fmt"
	"strings"
)

// FieldError says what is wrong with one field and what would be right.
type FieldError struct {
	// Field is the field's name as the schema, the API and the rules file spell it, such as
	// burst_capacity.
	Field string
	// Message is for people; it starts in lower case and reads well after the field's name.
	Message string
}

// FieldErrors are all that is wrong with one value.
type FieldErrors []FieldError

// Error joins the messages, each behind its field's name.
func (e FieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Field + ": " + f.Message
	}
	return strings.Join(lines, "; ")
}

// UnknownToProcessError is for a rule or a tenant that a live process of an older release does not know how to apply: it would let
// the checks of an unknown algorithm pass, would not lower the rate of a rule that adapts, and would look for the buckets of a
// spread tenant in another place.
type UnknownToProcessError struct {
	Word             string // an algorithm, WordAdapt or WordSpread
	Process, Version string
}

// WordAdapt, WordLeases and WordSpread stand beside the algorithms in what a process knows. Tokens are lent to processes only while
// every process knows that buckets lend.
const (
	WordAdapt  = "adapt"
	WordLeases = "leases"
	WordSpread = "spread"
)

// Error says which process it is and what to do.
func (e UnknownToProcessError) Error() string {
	what := "the algorithm " + e.Word
	switch e.Word {
	case WordAdapt:
		what = "rates that adapt"
	case WordSpread:
		what = "tenants whose buckets are spread"
	}
	return fmt.Sprintf("the process %s of version %s is still running and does not know %s: upgrade or stop it, and save again a minute later",
		e.Process, e.Version, what)
}
