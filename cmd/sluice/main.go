// Command sluice runs everything in one process, for trials and development.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/app/dev"
	"github.com/sluicegate/sluice/internal/config"
)

func main() { os.Exit(app.Main("sluice", run)) }

func run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	return dev.Run(ctx, cfg, os.Stdout, log)
}
