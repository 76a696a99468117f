package adminapi

import "strings"

// formula are what cells begin with that a spreadsheet computes instead of showing.
const formula = "=+-@\t\r"

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
	return bare != "" && strings.IndexByte(formula, bare[0]) >= 0
}
