// Command api answers checks.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/app/decide"
	"github.com/sluicegate/sluice/internal/config"
)

func main() { os.Exit(app.Main("api", run)) }

func run(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	api, err := decide.NewAPI(ctx, cfg, log)
	if err != nil {
		return err
	}
	return api.Run(ctx)
}
