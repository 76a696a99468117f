package adminapi

import "strings"

const (
	// formulaStarts begin cells that a spreadsheet computes instead of showing. Some programs accept the full-width
	// forms, or skip a tab or line break before the sign.
	formulaStarts = "=+-@\t\r\n＝＋－＠"
	// cellEnds are characters after which a spreadsheet may begin a new cell. In many countries Excel splits at
	// semicolons and then ignores quotes inside a line, so quoting the cell does not help.
	cellEnds = ";,|\t\r\n\""
)

// escapeFormulas keeps spreadsheets from taking a cell, or a part that they split off, for a formula: it puts an
// apostrophe before each such part. An existing apostrophe is doubled, so that unescapeFormulas can undo it.
func escapeFormulas(cell string) string {
	if !strings.ContainsAny(cell, formulaStarts) {
		return cell
	}
	var out strings.Builder
	for rest := cell; rest != ""; {
		if isFormula(rest) {
			out.WriteByte('\'')
		}
		part := firstPart(rest)
		out.WriteString(part)
		rest = rest[len(part):]
	}
	return out.String()
}

// unescapeFormulas undoes escapeFormulas.
func unescapeFormulas(cell string) string {
	if !strings.Contains(cell, "'") {
		return cell
	}
	var out strings.Builder
	for rest := cell; rest != ""; {
		if quoted, ok := strings.CutPrefix(rest, "'"); ok && isFormula(quoted) {
			rest = quoted
		}
		part := firstPart(rest)
		out.WriteString(part)
		rest = rest[len(part):]
	}
	return out.String()
}

// isFormula reports whether a cell is a formula for some spreadsheet, or would be without leading spaces and
// apostrophes.
func isFormula(cell string) bool {
	bare := strings.TrimLeft(cell, "' ")
	return bare != "" && strings.IndexAny(bare, formulaStarts) == 0
}

func firstPart(text string) string {
	if end := strings.IndexAny(text, cellEnds); end >= 0 {
		return text[:end+1]
	}
	return text
}
