package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FieldError is a mistake in one field; the message, in lower case, follows the field's name.
type FieldError struct {
	Field   string
	Message string
}

// FieldErrors are all mistakes in one value.
type FieldErrors []FieldError

func (e FieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Field + ": " + f.Message
	}
	return strings.Join(lines, "; ")
}

// UnknownToProcessError refuses a rule that a live process of an older release cannot apply.
type UnknownToProcessError struct {
	Word             string // an algorithm, WordAdapt or WordMeters
	Process, Version string
}

// WordAdapt, WordMeters and WordLeases are capabilities of a process; buckets lend tokens once every process has
// WordLeases.
const (
	WordAdapt  = "adapt"
	WordMeters = "meters"
	WordLeases = "leases"
)

var capabilities = map[string]string{WordAdapt: "rates that adapt", WordMeters: "meters", WordLeases: "leases"}

// KnownWords returns the algorithms and capabilities of this program.
func KnownWords() []string {
	words := slices.Sorted(maps.Keys(capabilities))
	for _, algorithm := range Algorithms {
		words = append(words, string(algorithm))
	}
	return words
}

func (e UnknownToProcessError) Error() string {
	what := cmp.Or(capabilities[e.Word], "the algorithm "+e.Word)
	return fmt.Sprintf("the process %s of version %s is still running and does not know %s: upgrade or stop it, and "+
		"save again a minute later",
		e.Process, e.Version, what)
}
