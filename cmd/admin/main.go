// Command admin serves the admin API and the UI, and changes tenants, keys and rules.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/app/control"
	"github.com/sluicegate/sluice/internal/config"
)

func main() { os.Exit(app.Main("admin", run)) }

func run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	return control.Run(ctx, cfg, os.Stdin, os.Stdout, log)
}
