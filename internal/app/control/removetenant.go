package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func removeTenant(ctx context.Context, store pgstore.Writer, args config.Arguments, out io.Writer) error {
	if args.Confirm != args.Tenant {
		return errors.New("--confirm must be the slug that --tenant is")
	}
	for {
		tenant, err := tenantBySlug(ctx, store, args.Tenant)
		if err != nil {
			return err
		}
		if !tenant.Suspended {
			tenant.Suspended = true
			if tenant, err = store.UpdateTenant(ctx, tenant); errors.Is(err, rules.ErrChanged) {
				continue // another change came first
			} else if err != nil {
				return err
			}
		}
		if err := store.RemoveTenant(ctx, tenant.ID, rules.AnyVersion); err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, tenant.Slug)
		return err
	}
}

func restoreTenant(ctx context.Context, store pgstore.Writer, args config.Arguments, out io.Writer) error {
	tenant, err := store.RestoreTenant(ctx, args.Tenant)
	switch {
	case errors.Is(err, rules.ErrNotFound):
		return fmt.Errorf("there is no removed tenant %q", args.Tenant)
	case errors.Is(err, rules.ErrFinal):
		return fmt.Errorf("the data of tenant %q is being erased or is gone", args.Tenant)
	case err != nil:
		return err
	}
	_, err = fmt.Fprintln(out, tenant.Slug)
	return err
}

func createServiceKey(ctx context.Context, store pgstore.Writer, args config.Arguments, out io.Writer) error {
	token, id, digest := auth.NewServiceKeyToken()
	now := time.Now()
	key := auth.NamedKey{
		Key: auth.Key{
			ID: id, Digest: digest, Permissions: args.ServicePermissions,
			ExpiresAt: now.Add(args.ExpiresIn),
		},
		Name: args.Name,
	}
	if wrong := key.ValidateService(now); len(wrong) > 0 {
		return wrong
	}
	return storeKey(ctx, store, key, token, out)
}
