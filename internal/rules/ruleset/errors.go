package ruleset

import (
	"strconv"
	"strings"
)

// Error is a mistake in a file.
type Error struct {
	File    string // as the caller named it; may be ""
	Line    int    // from 1; 0 for the whole file
	Field   string // such as rules[3].burst_capacity, counted from 0; "" for none
	Message string // for people, follows the field's name
}

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

// Errors are the first maxErrors mistakes in a file, sorted by line.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}
