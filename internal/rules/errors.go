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

// UnknownToProcessError is for a rule whose algorithm a live process does not know, because it is of an older release.
// That process would let the rule's checks pass.
type UnknownToProcessError struct {
	Algorithm        Algorithm
	Process, Version string
}

// Error says which process it is and what to do.
func (e UnknownToProcessError) Error() string {
	return fmt.Sprintf("the process %s of version %s is still running and does not know the algorithm %s: upgrade or stop it, and save again a minute later",
		e.Process, e.Version, e.Algorithm)
}
