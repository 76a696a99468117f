package adminapi

import "strings"

const (
	// formulaStarts begin formulas; some spreadsheets accept the full-width forms, or skip a tab or line break before.
	formulaStarts = "=+-@\t\r\n＝＋－＠"
	// cellEnds may end a cell. In many countries Excel splits at semicolons, even inside quotes.
	cellEnds = ";,|\t\r\n\""
)

// escapeFormulas puts an apostrophe before each part of a cell that a spreadsheet may compute, and doubles one there,
// so that unescapeFormulas can undo it.
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

// isFormula ignores leading spaces and apostrophes, as some spreadsheets do.
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
