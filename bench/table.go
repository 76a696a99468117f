package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

type line struct {
	what           string
	baseline, ours string
	ratio          string
	target, met    string // empty for a row that only informs
}

// ratioLine makes a row that shows ours ÷ baseline. A positive target is the least ratio that meets it, a negative one
// the greatest; 0 means that the row has no target.
func ratioLine(what, format string, baseline, ours, target float64) line {
	return lineOf(what, format, baseline, ours, ours/baseline, target)
}

// inverseLine makes a row of baseline ÷ ours, for costs.
func inverseLine(what string, baseline, ours, atLeast float64) line {
	return lineOf(what, "%.1f", baseline, ours, baseline/ours, atLeast)
}

func lineOf(what, format string, baseline, ours, ratio, target float64) line {
	l := line{
		what: what, baseline: fmt.Sprintf(format, baseline), ours: fmt.Sprintf(format, ours),
		ratio: fmt.Sprintf("%.2f", ratio),
	}
	switch {
	case target > 0:
		l.target, l.met = fmt.Sprintf("at least %.4g", target), yesNo(ratio >= target)
	case target < 0:
		l.target, l.met = fmt.Sprintf("at most %.4g", -target), yesNo(ratio <= -target)
	}
	return l
}

// note makes a row without a target; a baseline of 0 is none.
func note(what, format string, baseline, ours float64) line {
	if baseline == 0 {
		return line{what: what, ours: fmt.Sprintf(format, ours)}
	}
	return ratioLine(what, format, baseline, ours, 0)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "NO"
}

func writeTable(w io.Writer, lines []line) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "what\tbaseline\tours\tratio\ttarget\tmet")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", l.what, l.baseline, l.ours, l.ratio, l.target, l.met)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
