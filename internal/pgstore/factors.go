package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ auth.FactorStore = (*Store)(nil)

// SecondFactor returns the second factor of an account.
func (s *Store) SecondFactor(ctx context.Context, account auth.AccountID) (auth.SecondFactor, error) {
	row, err := s.queriesFor(classRead, everyTenant).SecondFactor(ctx, account)
	return auth.SecondFactor{
		Since: orZero(row.SecondFactorAt), Sealed: row.SecondFactor.Secret, RecoveryCodes: int(row.RecoveryCodes),
	}, wrap(err, "read the second factor of account %d", account)
}

// BeginSecondFactor stores a secret that waits for its first code.
func (s *Store) BeginSecondFactor(ctx context.Context, account auth.AccountID, sealed []byte) error {
	err := s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		begun, err := q.BeginSecondFactor(ctx, sealed, account)
		if err == nil && begun == 0 {
			err = rules.ErrExists
		}
		if err != nil {
			return err
		}
		return commitIdempotent(ctx, q)
	})
	return wrap(err, "begin the second factor of account %d", account)
}

// TurnSecondFactorOn makes the waiting factor count, and ends the account's other sessions.
func (s *Store) TurnSecondFactorOn(ctx context.Context, by rules.Actor, session auth.Session,
	codes []auth.Digest,
) (account auth.Account, err error) {
	id := session.Account.ID
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.TurnSecondFactorOn(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return rules.ErrExists
		}
		if err != nil {
			return err
		}
		account = accountFromRow(row)
		if err := replaceRecoveryCodes(ctx, q, id, codes); err != nil {
			return err
		}
		return q.KeepSession(ctx, id, session.ID)
	})
	return account, wrap(err, "turn the second factor of account %d on", id)
}

// TurnSecondFactorOff removes a factor and its recovery codes.
func (s *Store) TurnSecondFactorOff(ctx context.Context, by rules.Actor, id auth.AccountID,
	endSessions bool,
) (account auth.Account, err error) {
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.TurnSecondFactorOff(ctx, id)
		if err != nil {
			return err
		}
		account = accountFromRow(row)
		if err := q.DropSecondFactor(ctx, id); err != nil {
			return err
		}
		if err := q.DropRecoveryCodes(ctx, id); err != nil || !endSessions {
			return err
		}
		_, err = q.EndSessions(ctx, id)
		return err
	})
	return account, wrap(err, "turn the second factor of account %d off", id)
}

// ReplaceRecoveryCodes replaces the codes of an account that has a factor.
func (s *Store) ReplaceRecoveryCodes(ctx context.Context, by rules.Actor, account auth.AccountID,
	codes []auth.Digest,
) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := foundOne(q.NoteRecoveryCodes(ctx, account)); err != nil {
			return err
		}
		return replaceRecoveryCodes(ctx, q, account, codes)
	})
	return wrap(err, "replace the recovery codes of account %d", account)
}

func replaceRecoveryCodes(ctx context.Context, q *dbsqlc.Queries, account auth.AccountID, codes []auth.Digest) error {
	digests := make([][]byte, len(codes))
	for i := range codes {
		digests[i] = codes[i][:]
	}
	if err := q.DropRecoveryCodes(ctx, account); err != nil {
		return err
	}
	return q.CreateRecoveryCodes(ctx, account, digests)
}

// UseTimeStep uses up the codes of a time step and of earlier ones.
func (s *Store) UseTimeStep(ctx context.Context, account auth.AccountID, step int64, sealed, sealedAgain []byte) error {
	err := foundOne(s.queriesFor(classWrite, everyTenant).UseTimeStep(ctx, dbsqlc.UseTimeStepParams{
		AccountID: account, Step: step, Secret: sealed, SealedAgain: sealedAgain,
	}))
	return wrap(err, "use a code of account %d", account)
}

// UseRecoveryCode uses up a recovery code.
func (s *Store) UseRecoveryCode(ctx context.Context, account auth.AccountID, code auth.Digest) error {
	err := foundOne(s.queriesFor(classWrite, everyTenant).UseRecoveryCode(ctx, account, code[:]))
	return wrap(err, "use a recovery code of account %d", account)
}

// CreatePending stores a sign-in that waits for the second factor, and deletes old ones.
func (s *Store) CreatePending(
	ctx context.Context, account auth.AccountID, passwordHash string, token auth.Digest, expiresAt, now time.Time,
	most int,
) error {
	err := s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := foundOne(q.CreatePendingSignIn(ctx, dbsqlc.CreatePendingSignInParams{
			TokenDigest: token[:], AccountID: account, PasswordHash: passwordHash, ExpiresAt: expiresAt,
		})); err != nil {
			return err
		}
		return q.DropOldPendingSignIns(ctx, account, int32(most), now)
	})
	return wrap(err, "begin a sign-in of account %d", account)
}

// TryPending counts an attempt at a pending sign-in's second factor.
func (s *Store) TryPending(ctx context.Context, token auth.Digest, now time.Time, most int) (account auth.Account,
	passwordHash string, tries int, err error,
) {
	row, err := s.queriesFor(classWrite, everyTenant).TryPendingSignIn(ctx, token[:], now, int32(most))
	return accountFromRow(row.Account), row.Account.PasswordHash, int(row.Attempts), wrap(err, "continue a sign-in")
}

// EndPending deletes a pending sign-in.
func (s *Store) EndPending(ctx context.Context, token auth.Digest) error {
	err := foundOne(s.queriesFor(classWrite, everyTenant).DropPendingSignIn(ctx, token[:]))
	return wrap(err, "end a pending sign-in")
}

// ConfirmSession notes that the session's owner has signed in again.
func (s *Store) ConfirmSession(ctx context.Context, session int64) error {
	err := s.queriesFor(classWrite, everyTenant).ConfirmSession(ctx, session)
	return wrap(err, "confirm session %d", session)
}
