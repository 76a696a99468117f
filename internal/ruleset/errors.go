package ruleset

import (
	"strconv"
	"strings"
)

// Error is one thing that is wrong in a file.
type Error struct {
	File    string // as the caller named it; may be ""
	Line    int    // from 1; 0 if it is about the whole file
	Field   string // such as rules[3].burst_capacity, counted from 0; "" if it is about no field
	Message string // for people, to be read after the field's name
}

// Error writes rules.yaml:12: rules[3].burst_capacity: must be …, leaving out what is not known.
func (e Error) Error() string {
	var parts []string
	switch {
	case e.Line > 0 && e.File != "":
		parts = append(parts, e.File+":"+strconv.Itoa(e.Line))
	case e.Line > 0:
		parts = append(parts, "line "+strconv.Itoa(e.Line))
	case e.File != "":
		parts = append(parts, e.File)
	}
	if e.Field != "" {
		parts = append(parts, e.Field)
	}
	return strings.Join(append(parts, e.Message), ": ")
}

// Errors are what is wrong in a file, the first maxErrors that were found, in the order of its lines.
type Errors []Error

// Error writes each error on its own line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}
