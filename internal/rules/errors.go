package rules

import (
	"fmt"
	"strings"
)

// FieldError is a mistake in one field. Its message says what a right value is.
type FieldError struct {
	// Field is spelled as in the schema, the API and the rules file, such as burst_capacity.
	Field string
	// Message starts in lower case and follows the field's name.
	Message string
}

// FieldErrors are all mistakes in one value.
type FieldErrors []FieldError

// Error joins the messages, each after its field's name.
func (e FieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Field + ": " + f.Message
	}
	return strings.Join(lines, "; ")
}

// UnknownToProcessError refuses a rule that a live process of an older release cannot apply. That process would allow
// every check of an unknown algorithm, would not lower an adapting rate, and would count requests for any meter.
type UnknownToProcessError struct {
	Word             string // an algorithm, WordAdapt or WordMeters
	Process, Version string
}

// WordAdapt, WordMeters and WordLeases are capabilities of a process beside the algorithms. Buckets lend tokens only
// while every process has WordLeases.
const (
	WordAdapt  = "adapt"
	WordMeters = "meters"
	WordLeases = "leases"
)

// Error names the process and the remedy.
func (e UnknownToProcessError) Error() string {
	what := "the algorithm " + e.Word
	switch e.Word {
	case WordAdapt:
		what = "rates that adapt"
	case WordMeters:
		what = "meters"
	}
	return fmt.Sprintf("the process %s of version %s is still running and does not know %s: upgrade or stop it, and "+
		"save again a minute later",
		e.Process, e.Version, what)
}
