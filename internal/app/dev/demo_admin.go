package dev

import (
	"context"
	"errors"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	demoEmail    = "admin@example.com"
	demoPassword = "sluice-demo"
)

// createDemoAdmin writes the demo's admin, whose password is exempt from the usual requirements, unless there is one.
func createDemoAdmin(ctx context.Context, store *pgstore.Store) error {
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
