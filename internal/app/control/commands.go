package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// Run runs an admin command, whose result alone goes to out.
func Run(ctx context.Context, cfg config.Config, in io.Reader, out io.Writer, log *slog.Logger) error {
	switch cfg.Command {
	case config.AdminServe:
		return serve(ctx, cfg, log)
	case config.AdminMigrate:
		return migrateSchema(ctx, cfg, log)
	}
	store, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer app.CloseStore(store)
	by := atCommandLine(cfg.Command)
	writer := store.As(by)
	switch args := cfg.Arguments; cfg.Command {
	case config.AdminCreateAdmin:
		return createAdmin(ctx, store, by, args.Email, in, out, log)
	case config.AdminSetPassword:
		return setPassword(ctx, store, by, args.Email, in, out, log)
	case config.AdminRemoveFactor:
		return removeSecondFactor(ctx, store, by, args.Email, out, log)
	case config.AdminSignInLink:
		return signInLink(ctx, store, cfg, out)
	case config.AdminCreateTenant:
		return createTenant(ctx, writer, args, out)
	case config.AdminCreateKey:
		return createKey(ctx, writer, args, out)
	case config.AdminCreateServiceKey:
		return createServiceKey(ctx, writer, args, out)
	case config.AdminRemoveTenant:
		return removeTenant(ctx, writer, args, out)
	case config.AdminRestoreTenant:
		return restoreTenant(ctx, writer, args, out)
	case config.AdminEnforcement:
		return setEnforcement(ctx, writer, args, out)
	case config.AdminApply:
		return apply(ctx, writer, args, in, out, decodeRules)
	case config.AdminImportEnvoy:
		return apply(ctx, writer, args, in, out, decodeEnvoy(args))
	case config.AdminReplay:
		return replayFile(ctx, store, args, in, out)
	case config.AdminExport:
		return export(ctx, store, args, out)
	default:
		return fmt.Errorf("%s is no admin command", cfg.Command)
	}
}

func migrateSchema(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	if err := migrate.Up(ctx, string(cfg.DatabaseURL), log); err != nil {
		return err
	}
	if cfg.Arguments.GrantTo == "" {
		return nil
	}
	return pgstore.Grant(ctx, string(cfg.DatabaseURL), cfg.Arguments.GrantTo)
}

func atCommandLine(command config.Command) rules.Actor {
	_, name, _ := strings.Cut(string(command), " ")
	if who, err := user.Current(); err == nil {
		name += " by " + who.Username
	}
	return rules.Actor{Kind: rules.ActorCommand, Name: name}
}

func openStore(ctx context.Context, cfg config.Config, log *slog.Logger) (*pgstore.Store, error) {
	if err := pgstore.CheckSchema(ctx, string(cfg.DatabaseURL)); err != nil {
		return nil, err
	}
	return pgstore.Open(ctx, string(cfg.DatabaseURL), log)
}

func createTenant(ctx context.Context, store pgstore.Writer, args config.Arguments, out io.Writer) error {
	tenant := rules.Tenant{
		Slug: args.Slug, Name: args.Name, DefaultPlan: args.DefaultPlan, Settings: rules.DefaultSettings(),
	}
	if wrong := tenant.Validate(); len(wrong) > 0 {
		return wrong
	}
	if tenant.DefaultPlan != "" {
		if wrong := (&rules.Plan{Name: tenant.DefaultPlan}).Validate(); len(wrong) > 0 {
			return fmt.Errorf("default plan: %w", wrong)
		}
	}
	created, err := store.CreateTenant(ctx, tenant)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, created.Slug)
	return err
}

func createKey(ctx context.Context, store pgstore.Writer, args config.Arguments, out io.Writer) error {
	tenant, err := tenantBySlug(ctx, store, args.Tenant)
	if err != nil {
		return err
	}
	token, id, digest := auth.NewKeyToken()
	key := auth.NamedKey{
		Key:  auth.Key{ID: id, TenantID: tenant.ID, Digest: digest, Permissions: args.Permissions},
		Name: args.Name,
	}
	if wrong := key.Validate(time.Now()); len(wrong) > 0 {
		return wrong
	}
	return storeKey(ctx, store, key, token, out)
}

func storeKey(ctx context.Context, store pgstore.Writer, key auth.NamedKey, token string, out io.Writer) error {
	if _, err := store.CreateKey(ctx, key); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, token); err != nil {
		// The key cannot be shown again.
		err = fmt.Errorf("print the key: %w", err)
		revokeErr := store.RevokeKey(context.WithoutCancel(ctx), key.TenantID, key.ID, rules.AnyVersion)
		if revokeErr != nil {
			return errors.Join(err, fmt.Errorf("it is still valid: %w", revokeErr))
		}
		return fmt.Errorf("%w; key %s was revoked", err, key.ID)
	}
	return nil
}

func setEnforcement(ctx context.Context, store pgstore.Writer, args config.Arguments, out io.Writer) error {
	for {
		tenant, err := tenantBySlug(ctx, store, args.Tenant)
		if err != nil {
			return err
		}
		tenant.InShadow = rules.Enforcement(args.Enforcement) == rules.EnforcementShadow
		switch tenant, err = store.UpdateTenant(ctx, tenant); {
		case errors.Is(err, rules.ErrChanged):
			continue // another change came first
		case err != nil:
			return err
		}
		_, err = fmt.Fprintln(out, tenant.Enforcement())
		return err
	}
}

func apply(ctx context.Context, store pgstore.Writer, args config.Arguments, in io.Reader, out io.Writer,
	decode decodeConfig,
) error {
	tenant, err := tenantBySlug(ctx, store, args.Tenant)
	if err != nil {
		return err
	}
	files, err := readFiles(args.Files, in)
	if err != nil {
		return err
	}
	var notes ruleset.Errors
	options := ruleset.DiffOptions{Prune: args.Prune, Now: time.Now()}
	change := func(current ruleset.Config) (ruleset.Changes, error) {
		var desired ruleset.Config
		if desired, notes, err = decode(files, current); err != nil {
			return ruleset.Changes{}, err
		}
		notes = append(notes, unmet(args.Tenant, current, desired, args.Prune)...)
		return ruleset.Diff(current, desired, options)
	}
	var changes ruleset.Changes
	if args.DryRun {
		current, err := store.Config(ctx, tenant.ID)
		if err != nil {
			return err
		}
		if changes, err = change(current); err != nil {
			return err
		}
		if err := store.RequireKnown(ctx, changes.Written()); err != nil {
			return err
		}
	} else if changes, err = store.ChangeConfig(ctx, tenant.ID, change); err != nil {
		return err
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(out, "!", note); err != nil {
			return err
		}
	}
	return changes.WriteText(out)
}

// readFiles reads files, standard input ("-"), and the .yaml and .yml files of folders. Hidden subfolders are skipped,
// because a mounted ConfigMap has its files there a second time.
func readFiles(names []string, in io.Reader) (files []ruleset.File, err error) {
	read := func(name string) error {
		content, err := os.ReadFile(name)
		files = append(files, ruleset.File{Name: name, Data: content})
		return err
	}
	for _, name := range names {
		switch _, notFolder := os.ReadDir(name); {
		case name == "-":
			var content []byte
			content, err = io.ReadAll(in)
			files = append(files, ruleset.File{Name: "standard input", Data: content})
		case notFolder != nil:
			err = read(name)
		default:
			before := len(files)
			err = fs.WalkDir(os.DirFS(name), ".", func(path string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					return err
				case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
					return fs.SkipDir
				case !entry.IsDir() && ruleset.IsYAMLName(entry.Name()):
					return read(filepath.Join(name, path))
				}
				return nil
			})
			if err == nil && len(files) == before {
				err = fmt.Errorf("%s has no files whose names end in .yaml or .yml", name)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read the rules: %w", err)
		}
	}
	return files, nil
}

type decodeConfig func(files []ruleset.File, current ruleset.Config) (ruleset.Config, ruleset.Errors, error)

func decodeRules(files []ruleset.File, current ruleset.Config) (ruleset.Config, ruleset.Errors, error) {
	if len(files) != 1 {
		return ruleset.Config{}, nil, errors.New("give one file of rules")
	}
	var plans []string
	for _, plan := range current.Plans {
		plans = append(plans, plan.Name)
	}
	config, err := ruleset.Decode(bytes.NewReader(files[0].Data), files[0].Name, plans)
	return config, nil, err
}

func decodeEnvoy(args config.Arguments) decodeConfig {
	options := ruleset.EnvoyOptions{
		SkipUnsupported: args.SkipUnsupported, Record: args.Record, OwnLimits: args.OwnLimits,
	}
	switch {
	case args.Merge:
		options.Lost = ruleset.MergeLost
	case args.Replace:
		options.Lost = ruleset.ReplaceLost
	}
	return func(files []ruleset.File, current ruleset.Config) (ruleset.Config, ruleset.Errors, error) {
		if args.Merge && args.Replace {
			return ruleset.Config{}, nil, errors.New(
				"give --merge or --replace: the first keeps what the other removes")
		}
		return ruleset.DecodeEnvoy(files, current.Gateways, options)
	}
}

func export(ctx context.Context, store *pgstore.Store, args config.Arguments, out io.Writer) error {
	tenant, err := tenantBySlug(ctx, store, args.Tenant)
	if err != nil {
		return err
	}
	config, err := store.Config(ctx, tenant.ID)
	if err != nil {
		return err
	}
	return ruleset.Encode(out, config)
}

func tenantBySlug(ctx context.Context, store rules.Reader, slug string) (rules.Tenant, error) {
	tenant, err := store.TenantBySlug(ctx, slug)
	if errors.Is(err, rules.ErrNotFound) {
		return tenant, fmt.Errorf("there is no tenant %q; create it with `admin create-tenant`", slug)
	}
	return tenant, err
}
