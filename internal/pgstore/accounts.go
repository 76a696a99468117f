package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// CreateAccount stores an account and its password's hash.
func (s *Store) CreateAccount(ctx context.Context, by rules.Actor, account auth.Account,
	passwordHash string,
) (auth.Account, error) {
	var row dbsqlc.Account
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		row, err = createAccount(ctx, q, account, passwordHash)
		return err
	})
	if err != nil {
		return auth.Account{}, fmt.Errorf("create account: %w", err)
	}
	return accountFromRow(row), nil
}

func createAccount(ctx context.Context, q *dbsqlc.Queries, account auth.Account, passwordHash string) (dbsqlc.Account,
	error,
) {
	return q.CreateAccount(ctx, dbsqlc.CreateAccountParams{
		Email: account.Email, Name: account.Name, IsPlatformAdmin: account.PlatformAdmin, PasswordHash: passwordHash,
		UnprovenIn: tenantOrNull(account.UnprovenIn),
	})
}

// Account returns the account with an id.
func (s *Store) Account(ctx context.Context, id auth.AccountID) (auth.Account, error) {
	row, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.Account, error) {
		return q.Account(ctx, id)
	})
	if err != nil {
		return auth.Account{}, fmt.Errorf("read account %d: %w", id, err)
	}
	return accountFromRow(row), nil
}

func tenantOrNull(tenant rules.TenantID) *int64 {
	if tenant == 0 {
		return nil
	}
	return (*int64)(&tenant)
}

// ProveAddress makes an account the one that has proven its address.
func (s *Store) ProveAddress(ctx context.Context, by rules.Actor, id auth.AccountID,
	expected rules.Expected,
) (proven auth.Account, err error) {
	by.Act = cmp.Or(by.Act, "verify the address")
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		stored, err := q.Account(ctx, id)
		if err != nil {
			return err
		}
		if err := expect(expected, stored.Version); err != nil {
			return err
		}
		row, err := q.ProveAccount(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			row, err = stored, nil // it is already
		}
		proven = accountFromRow(row)
		return err
	})
	if err != nil {
		return auth.Account{}, fmt.Errorf("prove the address of account %d: %w", id, err)
	}
	return proven, nil
}

// PasswordHash returns the hash of an account's password.
func (s *Store) PasswordHash(ctx context.Context, id auth.AccountID) (string, error) {
	row, err := ask(ctx, s, everyTenant,
		func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.Account, error) { return q.Account(ctx, id) })
	if err != nil {
		return "", fmt.Errorf("read the password's hash of account %d: %w", id, err)
	}
	return row.PasswordHash, nil
}

// PasswordOf returns the account with an address, and its password's hash.
func (s *Store) PasswordOf(ctx context.Context, email, slug string) (auth.Account, string, error) {
	row, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.Account, error) {
		return q.AccountByEmail(ctx, email, slug)
	})
	if err != nil {
		return auth.Account{}, "", fmt.Errorf("read an account by its address: %w", err)
	}
	return accountFromRow(row), row.PasswordHash, nil
}

// Accounts returns accounts whose address or name contains a text, by address, from a position.
func (s *Store) Accounts(ctx context.Context, text string, after auth.AccountPlace, limit int) ([]auth.Account, error) {
	rows, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.Account, error) {
		return q.AccountsAfter(ctx, dbsqlc.AccountsAfterParams{
			After: after.Email, AfterID: int64(after.ID), Text: text, PageSize: rowLimit(limit),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read accounts: %w", err)
	}
	return each(rows, accountFromRow), nil
}

// UpdateAccount changes all of an account except its address and password. If that removes access, the account's
// sessions and invitations end.
func (s *Store) UpdateAccount(ctx context.Context, by rules.Actor, account auth.Account) (updated auth.Account,
	err error,
) {
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		stored, err := q.Account(ctx, account.ID)
		if err != nil {
			return err
		}
		if err := expect(rules.Expected(account.Version), stored.Version); err != nil {
			return err
		}
		disables := stored.DisabledAt == nil && !account.DisabledAt.IsZero()
		loses := disables || stored.IsPlatformAdmin && !account.PlatformAdmin
		if loses {
			if err := mayLoseAccess(ctx, q, stored, disables); err != nil {
				return err
			}
		}
		row, err := q.UpdateAccount(ctx, dbsqlc.UpdateAccountParams{
			Name: account.Name, IsPlatformAdmin: account.PlatformAdmin, Disabled: !account.DisabledAt.IsZero(),
			AccountID: account.ID, Version: account.Version,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return missingOrChanged(ctx, q, account.ID)
		}
		if err == nil && loses {
			err = q.RevokeInvitationsOfAccount(ctx, account.ID)
		}
		if err == nil && row.DisabledAt != nil {
			_, err = q.EndSessions(ctx, account.ID)
		}
		updated = accountFromRow(row)
		return err
	})
	if err != nil {
		return auth.Account{}, fmt.Errorf("update account %d: %w", account.ID, err)
	}
	return updated, nil
}

// mayLoseAccess returns an error if disabling an account, or taking its platform role, would leave nobody in charge. It
// locks the rows that this depends on.
func mayLoseAccess(ctx context.Context, q *dbsqlc.Queries, account dbsqlc.Account, disables bool) error {
	if err := q.LockTenantsOf(ctx, account.AccountID); err != nil {
		return err
	}
	if disables {
		tenants, err := q.TenantsOnlyOwnedBy(ctx, account.AccountID)
		if err != nil {
			return err
		}
		if len(tenants) > 0 {
			return auth.OnlyOwnerError{Tenants: tenants}
		}
	}
	if !account.IsPlatformAdmin || account.DisabledAt != nil {
		return nil
	}
	admins, err := q.LockPlatformAdmins(ctx)
	if err == nil && !slices.ContainsFunc(admins, func(id auth.AccountID) bool { return id != account.AccountID }) {
		err = auth.ErrLastAdmin
	}
	return err
}

// ChangePassword replaces a password's hash, and ends all sessions of the account.
func (s *Store) ChangePassword(ctx context.Context, by rules.Actor, id auth.AccountID, from, to string) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		changed, err := q.SetPasswordHash(ctx, to, id, from)
		switch {
		case err != nil:
			return err
		case changed == 0:
			return missingOrChanged(ctx, q, id)
		}
		return endAccess(ctx, q, id)
	})
	if err != nil {
		return fmt.Errorf("change the password of account %d: %w", id, err)
	}
	return nil
}

func endAccess(ctx context.Context, q *dbsqlc.Queries, id auth.AccountID) error {
	if err := q.DropMailedLinks(ctx, id); err != nil {
		return err
	}
	_, err := q.EndSessions(ctx, id)
	return err
}

// Rehash replaces a password's hash by another hash of the same password.
func (s *Store) Rehash(ctx context.Context, id auth.AccountID, from, to string) error {
	by := rules.Actor{Kind: rules.ActorSystem, Name: "sluice", Act: "renew the hash of the same password"}
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.SetPasswordHash(ctx, to, id, from)
		return err
	})
	if err != nil {
		return fmt.Errorf("renew the password hash of account %d: %w", id, err)
	}
	return nil
}

func missingOrChanged(ctx context.Context, q *dbsqlc.Queries, id auth.AccountID) error {
	if _, err := q.Account(ctx, id); err != nil {
		return err
	}
	return rules.ErrChanged
}

func (s *Store) inTransaction(ctx context.Context, do func(context.Context, *dbsqlc.Queries) error) error {
	return writeError(s.transaction(ctx, classWrite, everyTenant, do))
}

func (s *Store) inTransactionAs(ctx context.Context, by rules.Actor,
	do func(context.Context, *dbsqlc.Queries) error,
) error {
	return s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.SetActor(ctx, actorSetting(by)); err != nil {
			return err
		}
		if err := do(ctx, q); err != nil {
			return err
		}
		return commitIdempotent(ctx, q)
	})
}

func accountFromRow(row dbsqlc.Account) auth.Account {
	account := auth.Account{
		ID:            row.AccountID,
		Email:         row.Email,
		Name:          row.Name,
		PlatformAdmin: row.IsPlatformAdmin,
		CreatedAt:     row.CreatedAt.UTC(),
		DisabledAt:    orZero(row.DisabledAt),
		Version:       row.Version,
		AdminBy:       row.AdminBy,
		HasPassword:   auth.HasPassword(row.PasswordHash),

		SecondFactorAt: orZero(row.SecondFactorAt),
	}
	if row.UnprovenIn != nil {
		account.UnprovenIn = rules.TenantID(*row.UnprovenIn)
	}
	return account
}
