package pgstore

import (
	"cmp"
	"context"
	"errors"
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
	return accountFromRow(row), wrap(err, "create account")
}

func createAccount(ctx context.Context, q *dbsqlc.Queries, account auth.Account, passwordHash string) (dbsqlc.Account,
	error,
) {
	return q.CreateAccount(ctx, dbsqlc.CreateAccountParams{
		Email: account.Email, Name: account.Name, IsPlatformAdmin: account.PlatformAdmin, PasswordHash: passwordHash,
		UnprovenIn: unlessZero(int64(account.UnprovenIn)),
	})
}

// Account returns the account with an id.
func (s *Store) Account(ctx context.Context, id auth.AccountID) (auth.Account, error) {
	row, err := s.queriesFor(classRead, everyTenant).Account(ctx, id)
	return accountFromRow(row), wrap(err, "read account %d", id)
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
	return proven, wrap(err, "prove the address of account %d", id)
}

// PasswordHash returns the hash of an account's password.
func (s *Store) PasswordHash(ctx context.Context, id auth.AccountID) (string, error) {
	row, err := s.queriesFor(classRead, everyTenant).Account(ctx, id)
	return row.PasswordHash, wrap(err, "read the password's hash of account %d", id)
}

// PasswordOf returns the account with an address, and its password's hash.
func (s *Store) PasswordOf(ctx context.Context, email, slug string) (auth.Account, string, error) {
	row, err := s.queriesFor(classRead, everyTenant).AccountByEmail(ctx, email, slug)
	return accountFromRow(row), row.PasswordHash, wrap(err, "read an account by its address")
}

// Accounts returns accounts whose address or name contains a text, by address, from a position.
func (s *Store) Accounts(ctx context.Context, text string, after auth.AccountPlace, limit int) ([]auth.Account, error) {
	rows, err := s.queriesFor(classRead, everyTenant).AccountsAfter(ctx, dbsqlc.AccountsAfterParams{
		After: after.Email, AfterID: int64(after.ID), Text: text, PageSize: rowLimit(limit),
	})
	return each(rows, accountFromRow), wrap(err, "read accounts")
}

// UpdateAccount changes all of an account except its address and password, and ends its sessions with its access.
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
	return updated, wrap(err, "update account %d", account.ID)
}

// mayLoseAccess refuses what would leave nobody in charge, and locks the rows that this depends on.
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
	return wrap(err, "change the password of account %d", id)
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
	by := system("renew the hash of the same password")
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.SetPasswordHash(ctx, to, id, from)
		return err
	})
	return wrap(err, "renew the password hash of account %d", id)
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
	return auth.Account{
		ID:             row.AccountID,
		Email:          row.Email,
		Name:           row.Name,
		PlatformAdmin:  row.IsPlatformAdmin,
		CreatedAt:      row.CreatedAt.UTC(),
		DisabledAt:     orZero(row.DisabledAt),
		Version:        row.Version,
		AdminBy:        row.AdminBy,
		HasPassword:    auth.HasPassword(row.PasswordHash),
		SecondFactorAt: orZero(row.SecondFactorAt),
		UnprovenIn:     rules.TenantID(orZeroValue(row.UnprovenIn)),
	}
}
