package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	demoEmail    = "admin@example.com"
	demoPassword = "sluice-demo"
)

// createDemoAdmin writes the demo's admin, whose password is exempt from the usual requirements, unless there is one.
func createDemoAdmin(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	store, err := pgstore.Open(ctx, string(cfg.DatabaseURL), log)
	if err != nil {
		return err
	}
	defer store.Close()
	tenant, err := store.TenantBySlug(ctx, demoSlug)
	if errors.Is(err, rules.ErrNotFound) {
		return nil // it was removed
	}
	if err != nil {
		return err
	}
	by := rules.Actor{Kind: rules.ActorSystem, Name: "sluice dev"}
	account, err := store.CreateAccount(ctx, by,
		auth.Account{Email: demoEmail, Name: "Demo admin", PlatformAdmin: true},
		auth.HashPassword(demoPassword))
	if errors.Is(err, rules.ErrExists) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = store.AddMember(ctx, by, tenant.ID, account.ID, auth.Owner)
	return err
}

// refuseForeignPeople refuses a database with accounts but without the demo's key, which a person is setting up.
func refuseForeignPeople(ctx context.Context, conn *pgx.Conn) error {
	demoKey, _, _ := auth.SplitKeyToken(app.DemoToken)
	var foreign string
	err := conn.QueryRow(ctx, `SELECT email FROM account WHERE NOT EXISTS (SELECT FROM api_key WHERE key_id = $1)
		ORDER BY email LIMIT 1`, demoKey).Scan(&foreign)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return fmt.Errorf("the database has an account %q that sluice dev did not make; it would add an admin whose "+
			"password "+
			"everybody knows, so give it an empty database, or none for a private one", foreign)
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &refused) && refused.Code == noTable:
		return nil
	default:
		return fmt.Errorf("find out whose database it is: %w", err)
	}
}
