// Package app wires Sluice's parts into programs.
//
// A program is a value built from a config.Config. Building it binds its listeners; it runs until its context ends. All that
// a process shares is made here and passed down; there are no globals below.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
)

// The exit statuses of every binary.
const (
	exitFailed = 1
	exitUsage  = 2 // the configuration was refused
	// exitConditionMet is that of a replay whose --fail-if is true.
	exitConditionMet = 3
)

// Main reads the configuration, runs the program until it is done or a SIGINT or SIGTERM (a second one kills the process),
// and returns the exit status. Only the program's result goes to standard output.
func Main(binary string, run func(context.Context, config.Config, *slog.Logger) error) int {
	cfg, err := config.Parse(binary, os.Args[1:], os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", binary, err)
		return exitUsage
	}
	if cfg.Answer != "" {
		if _, err := fmt.Fprint(os.Stdout, cfg.Answer); err != nil {
			return exitFailed
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal kills the process
	log := cfg.Logger(os.Stderr)
	if cfg.Command.Serves() { // its log outlives the command line
		log.InfoContext(ctx, "starting", "config", cfg)
	}
	if err := run(ctx, cfg, log); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", binary, err)
		if errors.Is(err, errConditionMet) {
			return exitConditionMet
		}
		return exitFailed
	}
	return 0
}

// closePatience is how long a process waits for its database connections to close.
const closePatience = time.Second

// closeStore closes the connections to the database. It does not wait for a hanging server, as the driver would for a
// minute: the end of the process closes its connections, too.
func closeStore(store *pgstore.Store) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		store.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
}
