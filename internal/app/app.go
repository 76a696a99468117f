// Package app has what every program of Sluice does: Main, and the Process that planes run on.
//
// Each program's wiring is in a package of its own, so that it links no more than it needs:
//
//   - cmd/api: app/decide, the decision plane
//   - cmd/admin: app/control, the control plane and its commands
//   - cmd/sluice: app/dev, which runs both
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
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/pgstore"
)

// ErrConditionMet means that a replay's --fail-if is true.
var ErrConditionMet = errors.New("the condition is met")

// ErrUsage means that a command refused its options.
var ErrUsage = errors.New("the options were refused")

const (
	exitFailed       = 1
	exitUsage        = 2
	exitConditionMet = 3
)

// Main runs a program until it is done or a SIGINT or SIGTERM, and returns the exit status.
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
	slog.SetDefault(log)      // for panics in code without a log of its own
	if cfg.Command.Serves() { // their log outlives the command line
		log.InfoContext(ctx, "starting", "config", cfg)
	}
	if err := run(ctx, cfg, log); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", binary, err)
		switch {
		case errors.Is(err, ErrConditionMet):
			return exitConditionMet
		case errors.Is(err, ErrUsage):
			return exitUsage
		}
		return exitFailed
	}
	return 0
}

const closeTimeout = time.Second

// CloseStore closes the connections to the database without waiting for a hanging server, as the driver would for
// a minute.
func CloseStore(store *pgstore.Store) {
	closed := make(chan struct{})
	panics.Go(nil, "the end of connections to the database", func() {
		defer close(closed)
		store.Close()
	})
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
}
