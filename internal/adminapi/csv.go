package adminapi

import (
	"strings"
	"unicode/utf8"
)

// formula are what cells begin with that a spreadsheet computes instead of showing; some take the full-width
// forms for the others, or skip a line break before them.
const formula = "=+-@\t\r\n＝＋－＠"

// inert writes a cell so that no spreadsheet takes it for a formula: with an apostrophe before it. Cells
// that begin with apostrophes before such a character get one more, so that alive can undo it.
func inert(cell string) string {
	if isFormula(cell) {
		return "'" + cell
	}
	return cell
}

// alive undoes inert.
func alive(cell string) string {
	if rest, ok := strings.CutPrefix(cell, "'"); ok && isFormula(rest) {
		return rest
	}
	return cell
}

func isFormula(cell string) bool {
	bare := strings.TrimLeft(cell, "'")
	first, _ := utf8.DecodeRuneInString(bare)
	return bare != "" && first != utf8.RuneError && strings.ContainsRune(formula, first)
}
