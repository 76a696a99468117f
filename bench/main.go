// Command bench measures what Sluice promises about speed and memory, as ratios taken in one run on
// one machine: absolute figures say more about the machine.
//
//	go run .                     in this folder; takes about a minute, needs redis-server
//	go run . -rounds 9 -round 2s
//	go run . -violations 10000000   reading so many violations instead; takes some minutes, needs Postgres
//	go run . lists               only the section that is named; this one takes minutes, and 5 GB of disk
//	go run . -scale 10 lists     or a tenth of that
//
// The two sides of a ratio take turns, round by round, so that a busy neighbour slows both; the
// medians of the rounds are compared.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// line is one row of the table.
type line struct {
	what           string
	baseline, ours string
	ratio, target  string
}

// section is one part of the benchmark: what it compares, and how.
type section struct {
	name string
	run  func(ctx context.Context, rounds int, round time.Duration) ([]line, error)
}

// sections are all parts, in the order of the table.
var sections = []section{
	{"redis: the seed design and redisbucket", redisThroughput},
	{"memory: a map increment and membucket", memoryTake},
	{"redis: memory per bucket", redisMemory},
	{"matching", matching},
	{"lists: first pages", firstPages},
}

func main() {
	rounds := flag.Int("rounds", 5, "rounds per side; the median counts")
	round := flag.Duration("round", time.Second, "length of a round")
	violations := flag.Int("violations", 0, "compare reading so many violations, and nothing else; 0 leaves that out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if *violations > 0 {
		sections = []section{{"reading violations", func(ctx context.Context, rounds int, _ time.Duration) ([]line, error) {
			return readViolations(ctx, rounds, *violations)
		}}}
	}
	err := run(ctx, flag.Args(), *rounds, *round)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string, rounds int, round time.Duration) error {
	if rounds < 1 || round <= 0 {
		return fmt.Errorf("%d rounds of %v are nothing to measure", rounds, round)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "what\tbaseline\tours\tratio\ttarget")
	for _, section := range sections {
		if !asked(names, section.name) {
			continue
		}
		lines, err := section.run(ctx, rounds, round)
		if err != nil {
			return fmt.Errorf("%s: %w", section.name, err)
		}
		for _, l := range lines {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.what, l.baseline, l.ours, l.ratio, l.target)
		}
	}
	return table.Flush()
}

// asked says whether a section is among those named on the command line by their first word. Without
// names all are but the lists, which take minutes to load.
func asked(names []string, section string) bool {
	word, _, _ := strings.Cut(section, ":")
	if len(names) == 0 {
		return word != "lists"
	}
	return slices.Contains(names, word)
}
