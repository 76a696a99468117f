package pgstore

import (
	"cmp"
	"context"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// CreateSession stores a session and deletes the account's expired ones.
func (s *Store) CreateSession(ctx context.Context, session auth.NewSession, live auth.Live) (created auth.Session,
	err error,
) {
	account := session.Account
	err = s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.CreateSession(ctx, dbsqlc.CreateSessionParams{
			TokenDigest: session.Token[:], UserAgent: session.UserAgent, Ip: unlessZero(session.IP),
			Provider:  session.Provider,
			AccountID: account.ID, PasswordHash: session.PasswordHash, SecondFactor: session.SecondFactor,
		})
		if err != nil {
			return err
		}
		created = sessionFromRow(row, account)
		if err := q.EndSessionByToken(ctx, session.Replaces[:]); err != nil {
			return err
		}
		return q.EndStaleSessions(ctx, dbsqlc.EndStaleSessionsParams{
			AccountID: account.ID, SeenSince: live.SeenSince, CreatedSince: live.CreatedSince, Most: auth.MaxSessions,
		})
	})
	return created, wrap(err, "create a session of account %d", account.ID)
}

// SessionOf returns the session with a token. Failing to note its use is not an error.
func (s *Store) SessionOf(ctx context.Context, token auth.Digest, live auth.Live, use auth.Use) (auth.Session, error) {
	row, err := s.queriesFor(classRead, everyTenant).SessionByToken(ctx, token[:], live.SeenSince, live.CreatedSince)
	if err != nil {
		return auth.Session{}, wrap(err, "read a session by its token")
	}
	session := sessionFromRow(row.Session, accountFromRow(row.Account))
	if use != auth.Used || !row.ToBeNoted {
		return session, nil
	}
	err = s.queriesFor(classWrite, everyTenant).NoteSessionSeen(ctx, session.ID)
	if err != nil {
		s.log.WarnContext(ctx, "a session's use was not noted", "session_id", session.ID, "error", err)
	}
	return session, nil
}

// Sessions returns the live sessions of an account, the latest first.
func (s *Store) Sessions(ctx context.Context, account auth.AccountID, live auth.Live) ([]auth.Session, error) {
	holder, err := s.Account(ctx, account)
	if err != nil {
		return nil, err
	}
	rows, err := s.queriesFor(classRead, everyTenant).Sessions(ctx, account, live.SeenSince, live.CreatedSince)
	return each(rows, func(row dbsqlc.Session) auth.Session { return sessionFromRow(row, holder) }),
		wrap(err, "read the sessions of account %d", account)
}

// EndSession ends one session of an account.
func (s *Store) EndSession(ctx context.Context, account auth.AccountID, id int64) error {
	err := foundOne(s.queriesFor(classWrite, everyTenant).EndSession(ctx, account, id))
	return wrap(err, "end session %d of account %d", id, account)
}

// EndSessions ends all sessions of an account and returns their number.
func (s *Store) EndSessions(ctx context.Context, account auth.AccountID) (int64, error) {
	ended, err := s.queriesFor(classWrite, everyTenant).EndSessions(ctx, account)
	return ended, wrap(err, "end the sessions of account %d", account)
}

// SignOutAccount ends all sessions of an account in the name of somebody else.
func (s *Store) SignOutAccount(ctx context.Context, by rules.Actor, id auth.AccountID) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		ended, err := q.EndSessions(ctx, id)
		if err != nil {
			return err
		}
		return q.NoteSessionsEnded(ctx, int64(id), ended)
	})
	return wrap(err, "sign account %d out", id)
}

func sessionFromRow(row dbsqlc.Session, account auth.Account) auth.Session {
	return auth.Session{
		ID:           row.SessionID,
		Account:      account,
		CreatedAt:    row.CreatedAt.UTC(),
		LastSeenAt:   row.LastSeenAt.UTC(),
		UserAgent:    row.UserAgent,
		IP:           orZeroValue(row.Ip),
		Provider:     row.Provider,
		SecondFactor: row.SecondFactor,
		ConfirmedAt:  cmp.Or(orZero(row.ConfirmedAt), row.CreatedAt.UTC()),
	}
}
