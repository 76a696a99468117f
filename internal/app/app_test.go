package app_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/config"
)

// Not parallel: it stands in for the process.
func TestAServerLogsItsConfigurationWithoutSecrets(t *testing.T) {
	t.Setenv("SLUICE_DATABASE_URL", "postgres://app:hunter2@db/sluice")
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer func(args []string, f *os.File) { os.Args, os.Stderr = args, f }(os.Args, os.Stderr)
	os.Args, os.Stderr = []string{"api"}, stderr
	if status := app.Main("api", func(context.Context, config.Config, *slog.Logger) error { return nil }); status != 0 {
		t.Errorf("exit status %d", status)
	}
	logged, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	if text := string(logged); !strings.Contains(text, "msg=starting config.command=api") ||
		!strings.Contains(text, "@db/sluice") || strings.Contains(text, "hunter2") {
		t.Errorf("it logged %q", text)
	}
}
