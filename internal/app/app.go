// Package app wires Sluice's parts into the programs that people start.
//
// Each program is a value that is built from a config.Config, has bound its listeners when that
// succeeds, and runs until its context ends. Everything that a process shares is made here and
// handed down; nothing below looks for a global.
package app

import (
	"context"
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
)

// Main is what every main does: it reads the configuration, runs the program until it is done or
// the process is told to stop (SIGINT or SIGTERM; a second one ends it at once), and returns the
// exit status. Only the program's result goes to standard output.
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
	context.AfterFunc(ctx, stop) // the next signal is not ours any more
	log := cfg.Logger(os.Stderr)
	if cfg.Command.Serves() { // those whose log outlives the command line
		log.InfoContext(ctx, "starting", "config", cfg)
	}
	if err := run(ctx, cfg, log); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", binary, err)
		return exitFailed
	}
	return 0
}

// closePatience is how long the end of a process waits for the end of its database connections.
const closePatience = time.Second

// closeStore closes the connections to the database. The driver waits up to a minute for a server
// that has stopped answering, whose connections the end of the process closes as well.
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
