package dev

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const demoSlug = "demo"

//go:embed demo.yaml
var demoRules []byte

const noTable = "42P01" // the SQLSTATE

const lookTimeout = 10 * time.Second

// refuseForeign refuses a database with other tenants than the demo, or with accounts of a person who is setting it up.
// A refused database must not be migrated, so only columns of every version of the schema are read.
func refuseForeign(ctx context.Context, databaseURL string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("find out whose database it is: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	demoKey, _, _ := auth.SplitKeyToken(app.DemoToken)
	refuse := func(query, what, whose string, args ...any) error {
		var foreign string
		err := conn.QueryRow(ctx, query, args...).Scan(&foreign)
		var refused *pgconn.PgError
		switch {
		case err == nil:
			return fmt.Errorf("the database has %s %q that sluice dev did not make; it would add %s everybody knows, "+
				"so give it an empty database, or none for a private one", what, foreign, whose)
		case errors.Is(err, pgx.ErrNoRows), errors.As(err, &refused) && refused.Code == noTable:
			return nil
		}
		return fmt.Errorf("find out whose database it is: %w", err)
	}
	err = refuse(`SELECT slug FROM tenant WHERE slug <> $1 OR NOT EXISTS (
		SELECT FROM api_key WHERE api_key.tenant_id = tenant.tenant_id AND key_id = $2
	) ORDER BY slug LIMIT 1`, "a tenant", "a tenant whose key", demoSlug, demoKey)
	if err != nil {
		return err
	}
	return refuse(`SELECT email FROM account WHERE NOT EXISTS (SELECT FROM api_key WHERE key_id = $1)
		ORDER BY email LIMIT 1`, "an account", "an admin whose password", demoKey)
}

func createDemo(ctx context.Context, cfg config.Config, log *slog.Logger) (works bool, err error) {
	store, err := pgstore.Open(ctx, string(cfg.DatabaseURL), log)
	if err != nil {
		return false, err
	}
	defer store.Close()
	if works, err = createDemoTenant(ctx, store, log); err != nil {
		return false, fmt.Errorf("create the demo tenant: %w", err)
	}
	if err := createDemoAdmin(ctx, store); err != nil {
		return false, fmt.Errorf("create the demo's admin: %w", err)
	}
	return works, nil
}

// createDemoTenant writes it once, and reports whether the demo key works.
func createDemoTenant(ctx context.Context, store *pgstore.Store, log *slog.Logger) (works bool, err error) {
	writer := store.As(rules.Actor{Kind: rules.ActorSystem, Name: "demo"})
	tenant, err := store.TenantBySlug(ctx, demoSlug)
	if errors.Is(err, rules.ErrNotFound) {
		tenant, err = writer.CreateTenant(ctx, rules.Tenant{
			Slug: demoSlug, Name: "Demo", DefaultPlan: "free", Settings: demoSettings(),
		})
	}
	if err != nil {
		return false, err
	}
	id, secret, _ := auth.SplitKeyToken(app.DemoToken)
	key, err := store.Key(ctx, tenant.ID, id)
	if err == nil {
		works = key.RevokedAt.IsZero()
		if !works {
			log.WarnContext(ctx, "the demo key was revoked, for good; use a key of your own", "tenant", demoSlug)
		}
		return works, nil
	}
	if !errors.Is(err, rules.ErrNotFound) {
		return false, err
	}
	if err := createDemoRules(ctx, writer, tenant.ID); err != nil {
		return false, err
	}
	// The key comes last: if it exists, the demo is complete.
	_, err = writer.CreateKey(ctx, auth.NamedKey{
		Key: auth.Key{
			ID: id, TenantID: tenant.ID, Digest: auth.DigestSecret(secret),
			Permissions: []auth.Permission{auth.PermissionCheck, auth.PermissionExplain},
		},
		Name: "demo",
	})
	return err == nil, err
}

func demoSettings() rules.Settings {
	settings := rules.DefaultSettings()
	settings.RecordDays = 7
	return settings
}

func createDemoRules(ctx context.Context, store pgstore.Writer, tenant rules.TenantID) error {
	desired, err := ruleset.Decode(bytes.NewReader(demoRules), "demo.yaml", nil)
	if err != nil {
		return err
	}
	_, err = store.ChangeConfig(ctx, tenant, func(current ruleset.Config) (ruleset.Changes, error) {
		if len(current.Rules) > 0 {
			return ruleset.Changes{}, nil
		}
		return ruleset.Diff(current, desired, ruleset.DiffOptions{Now: time.Now()})
	})
	return err
}
