package rules

import "strings"

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
