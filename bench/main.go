// Command bench measures what Sluice promises about speed and memory, as ratios taken in one run on
// one machine: absolute figures say more about the machine.
//
//	go run .                        in this folder; takes about eight minutes
//	go run . -quick                 less than three, and less certain
//	go run . -only http             the sections whose names contain a text
//	go run . -rounds 9 -round 2s
//
// The two sides of a ratio take turns, so that a busy neighbour slows both, and medians are compared. The table also
// goes to results/, with a description of the machine.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

type section struct {
	name string
	run  func(ctx context.Context, rounds int, round time.Duration) ([]line, error)
}

// sections are in the order of the table.
var sections = []section{
	{"http: throughput and latency", throughput},
	{"http: what a check costs redis", redisCost},
	{"http: several processes", processes},
	{"leases: busy buckets", leases},
	{"leases: what they cannot help", needlessLeases},
	{"grpc: descriptors over gRPC, and what proxies ask over HTTP", overGRPC},
	{"rules: throughput among many", manyTenants},
	{"rules: memory", residentMemory},
	{"redis: rules of one meter and of three", meters},
	{"checkpoints: long limits", checkpoints},
	{"clients: the Go client", goClient},
	{"handles: decisions in the caller's process", decideInProcess},
	{"clients: the Python client", pythonClient},
	{"clients: the TypeScript client", typescriptClient},
}

func main() {
	rounds := flag.Int("rounds", 5, "rounds per side; the median counts")
	round := flag.Duration("round", time.Second, "length of a round")
	quick := flag.Bool("quick", false, "three short rounds per side")
	only := flag.String("only", "", "run only the sections whose names contain this")
	others := flag.Bool("compare", false, "compare Sluice with other rate limiters instead, in Markdown")
	full := flag.Bool("full", false, "with -compare: more callers and more loads")
	flag.Parse()
	if *quick {
		*rounds, *round = 3, 400*time.Millisecond
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *others {
		err = compareSystems(ctx, *full)
	} else {
		err = run(ctx, *only, *rounds, *round)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, rounds int, round time.Duration) error {
	if rounds < 1 || round <= 0 {
		return fmt.Errorf("%d rounds of %v are nothing to measure", rounds, round)
	}
	var lines []line
	busyBefore := loadAverage()
	for _, section := range sections {
		if !strings.Contains(section.name, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, section.name)
		measured, err := section.run(ctx, rounds, round)
		if err != nil {
			return fmt.Errorf("%s: %w", section.name, err)
		}
		lines = append(lines, measured...)
	}
	var report bytes.Buffer
	fmt.Fprintf(&report, "%s, medians of %d rounds of %s\n", time.Now().UTC().Format(time.RFC3339), rounds, round)
	fmt.Fprintf(&report, "%s\nload average %s before, %s after\n\n", machine(ctx), busyBefore, loadAverage())
	if err := writeTable(&report, lines); err != nil {
		return err
	}
	if slices.ContainsFunc(lines, func(l line) bool { return l.met == yesNo(false) }) {
		fmt.Fprintln(&report, "\nWhat is in the way of a target that is not met, and what would remove it, is in "+
			"bench/RESULTS.md.")
	}
	if _, err := os.Stdout.Write(report.Bytes()); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return keep(report.Bytes())
}

func keep(report []byte) error {
	if err := os.MkdirAll("results", 0o750); err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	name := filepath.Join("results", time.Now().UTC().Format("20060102-150405")+".txt")
	if err := os.WriteFile(name, report, 0o600); err != nil {
		return fmt.Errorf("keep the results: %w", err)
	}
	return nil
}

func machine(ctx context.Context) string {
	model := "unknown processor"
	if cpus, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for text := range strings.Lines(string(cpus)) {
			if name, ok := strings.CutPrefix(text, "model name\t: "); ok {
				model = strings.TrimSpace(name)
				break
			}
		}
	}
	parts := []string{
		fmt.Sprintf("%d × %s, %s/%s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version()),
		output(ctx, "redis-server", "--version"),
		"revision " + output(ctx, "git", "describe", "--always", "--dirty"),
	}
	return strings.Join(parts, "\n")
}

// output returns the first line that a program writes, or "unknown".
func output(ctx context.Context, program string, args ...string) string {
	text, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return first
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
