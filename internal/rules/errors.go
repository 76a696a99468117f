package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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

// capabilities says what the words beside the algorithms stand for.
var capabilities = map[string]string{WordAdapt: "rates that adapt", WordMeters: "meters", WordLeases: "leases"}

// KnownWords returns what this program knows: the algorithms and its capabilities.
func KnownWords() []string {
	words := slices.Sorted(maps.Keys(capabilities))
	for _, algorithm := range Algorithms {
		words = append(words, string(algorithm))
	}
	return words
}

// Error names the process and the remedy.
func (e UnknownToProcessError) Error() string {
	what := cmp.Or(capabilities[e.Word], "the algorithm "+e.Word)
	return fmt.Sprintf("the process %s of version %s is still running and does not know %s: upgrade or stop it, and "+
		"save again a minute later",
		e.Process, e.Version, what)
}
