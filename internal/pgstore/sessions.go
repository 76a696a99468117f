package pgstore

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// CreateSession stores a session and deletes the account's expired ones.
func (s *Store) CreateSession(ctx context.Context, session auth.NewSession, live auth.Live) (created auth.Session,
	err error,
) {
	var ip *netip.Addr
	if session.IP.IsValid() {
		ip = &session.IP
	}
	account := session.Account
	err = s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.CreateSession(ctx, dbsqlc.CreateSessionParams{
			TokenDigest: session.Token[:], UserAgent: session.UserAgent, Ip: ip, Provider: session.Provider,
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
	if err != nil {
		return auth.Session{}, fmt.Errorf("create a session of account %d: %w", account.ID, err)
	}
	return created, nil
}

// SessionOf returns the session with a token. Failing to note its use is not an error.
func (s *Store) SessionOf(ctx context.Context, token auth.Digest, live auth.Live, use auth.Use) (auth.Session, error) {
	row, err := ask(ctx, s, everyTenant,
		func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.SessionByTokenRow, error) {
			return q.SessionByToken(ctx, token[:], live.SeenSince, live.CreatedSince)
		})
	if err != nil {
		return auth.Session{}, fmt.Errorf("read a session by its token: %w", err)
	}
	session := sessionFromRow(row.Session, accountFromRow(row.Account))
	if use != auth.Used || !row.ToBeNoted {
		return session, nil
	}
	_, err = ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.NoteSessionSeen(ctx, session.ID)
	})
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
	rows, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.Session, error) {
		return q.Sessions(ctx, account, live.SeenSince, live.CreatedSince)
	})
	if err != nil {
		return nil, fmt.Errorf("read the sessions of account %d: %w", account, err)
	}
	return each(rows, func(row dbsqlc.Session) auth.Session { return sessionFromRow(row, holder) }), nil
}

// EndSession ends one session of an account.
func (s *Store) EndSession(ctx context.Context, account auth.AccountID, id int64) error {
	_, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, foundOne(q.EndSession(ctx, account, id))
	})
	if err != nil {
		return fmt.Errorf("end session %d of account %d: %w", id, account, err)
	}
	return nil
}

// EndSessions ends all sessions of an account and returns their number.
func (s *Store) EndSessions(ctx context.Context, account auth.AccountID) (int64, error) {
	ended, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
		return q.EndSessions(ctx, account)
	})
	if err != nil {
		return 0, fmt.Errorf("end the sessions of account %d: %w", account, err)
	}
	return ended, nil
}

// SignOutAccount ends all sessions of an account in the name of somebody else, which the platform's audit log has.
func (s *Store) SignOutAccount(ctx context.Context, by rules.Actor, id auth.AccountID) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		ended, err := q.EndSessions(ctx, id)
		if err != nil {
			return err
		}
		return q.NoteSessionsEnded(ctx, int64(id), ended)
	})
	if err != nil {
		return fmt.Errorf("sign account %d out: %w", id, err)
	}
	return nil
}

func sessionFromRow(row dbsqlc.Session, account auth.Account) auth.Session {
	session := auth.Session{
		ID:         row.SessionID,
		Account:    account,
		CreatedAt:  row.CreatedAt.UTC(),
		LastSeenAt: row.LastSeenAt.UTC(),
		UserAgent:  row.UserAgent,
		Provider:   row.Provider,

		SecondFactor: row.SecondFactor,
		ConfirmedAt:  row.CreatedAt.UTC(),
	}
	if row.ConfirmedAt != nil {
		session.ConfirmedAt = row.ConfirmedAt.UTC()
	}
	if row.Ip != nil {
		session.IP = *row.Ip
	}
	return session
}
