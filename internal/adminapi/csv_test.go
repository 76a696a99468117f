package adminapi

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFormulasGetAnApostrophe(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]string{
		"": "", "42": "42", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)",
		"\t=1": "'\t'=1", "\r=1": "'\r'=1", "\n=1": "'\n'=1", "＝1": "'＝1", "＠x": "'＠x", "\xff": "\xff",
		"'": "'", "'quoted": "'quoted", "'=1": "''=1", "''=1": "'''=1", " =1": "' =1", "a=1": "a=1", "a-b": "a-b",
		"a;=HYPERLINK(A1);b": "a;'=HYPERLINK(A1);b", "a,+1": "a,'+1", "a\t@x": "a\t'@x", `a"=1`: `a"'=1`,
		"a|=1":   "a|'=1",
		"a; '=1": "a;' '=1", "a;b": "a;b", `{"rate":-5}`: `{"rate":-5}`, "a\n-1": "a\n'-1",
	} {
		if got := escapeFormulas(cell); got != want {
			t.Errorf("%q is written %q, want %q", cell, got, want)
		}
	}
}

func TestNoSpreadsheetComputesACell(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{
		"=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", ";", ",", "|", `"`,
		"'", " ", "a", "1", "é", "\xff",
	})
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(part, 0, 8),
			func(parts []string) string { return strings.Join(parts, "") }), 1, 3).Draw(t, "cells")
		var file bytes.Buffer
		out := csv.NewWriter(&file)
		written := make([]string, len(cells))
		for i, cell := range cells {
			if written[i] = escapeFormulas(cell); unescapeFormulas(written[i]) != cell {
				t.Fatalf("%q is written %q and read %q", cell, written[i], unescapeFormulas(written[i]))
			}
		}
		if err := out.Write(written); err != nil {
			t.Fatal(err)
		}
		out.Flush()
		seen := written // what a correct CSV reader returns
		for _, separators := range []string{",", ";", "\t", "|", ";,\t|"} {
			line := strings.FieldsFunc(file.String(),
				func(r rune) bool { return strings.ContainsRune(separators+"\r\n", r) })
			seen = append(seen, line...)
		}
		for _, cell := range seen {
			cell = strings.TrimLeft(cell, `" `)
			if cell != "" && strings.IndexAny(cell, "=+-@＝＋－＠") == 0 {
				t.Errorf("a spreadsheet computes %q of %q", cell, file.String())
			}
		}
	})
}
