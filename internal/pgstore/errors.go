package pgstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	stateUniqueViolation = "23505"
	stateCheckViolation  = "23514"
	stateLockTimeout     = "55P03"
	stateBadText         = "22021" // a NUL, or bytes that are not UTF-8
	stateQueryCanceled   = "57014" // by statement_timeout, or by a database administrator
)

// writeError is domainError for a write: text that cannot be stored is the caller's mistake, while a read of it finds
// nothing.
func writeError(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == stateBadText {
		return rules.FieldErrors{{Field: "text", Message: "must be valid UTF-8 without a NUL byte"}}
	}
	return domainError(err)
}

func domainError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, rules.ErrNotFound) {
		return fmt.Errorf("%w (%w)", rules.ErrNotFound, err)
	}
	if isAway(err) && !errors.Is(err, rules.ErrAway) {
		return fmt.Errorf("%w (%w)", rules.ErrAway, explain(err))
	}
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		return err
	}
	switch {
	case refusal.Code == stateQueryCanceled && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
	case refusal.Code == stateUniqueViolation:
		return fmt.Errorf("%s %w", takenBy(refusal.ConstraintName), rules.ErrExists)
	case refusal.Code == stateCheckViolation && refusal.ConstraintName == "rate_limit_override_expires_at_check":
		return rules.FieldErrors{{Field: "expires_at", Message: "must be in the future"}}
	case refusal.ConstraintName == "tenant_capacity":
		return capacityError(refusal)
	case refusal.ConstraintName == "member_proven_check":
		return auth.ErrUnproven
	case refusal.Code == stateBadText:
		return fmt.Errorf("text with a NUL or invalid UTF-8 is never stored: %w", rules.ErrNotFound)
	}
	return err
}

// wrap turns the database's errors into the domain's, and adds the attempted action. It returns nil for nil.
func wrap(err error, attempted string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(attempted, args...), domainError(err))
}

// isAway reports whether a retry may work. A context that ended does not count, though it also breaks the connection.
func isAway(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && !errors.As(err, new(*pgconn.ConnectError)) {
		switch refusal.Code {
		case "25006", // read only, as a standby is after a failover
			"25P03",          // idle in a transaction for too long
			"40001", "40P01", // serialization failure, deadlock
			"57P01", "57P02", "57P03", "57P05": // shut down, crashed, starting, idle for too long
			return true
		}
		class := refusal.Code[:min(len(refusal.Code), 2)]
		return class == "08" || class == "53" // connection lost; out of connections, memory, disk
	}
	return errors.As(err, new(*pgconn.ConnectError)) || errors.As(err, new(net.Error)) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

func explain(err error) error {
	if !errors.As(err, new(*pgconn.ConnectError)) {
		return err
	}
	var refusal *pgconn.PgError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var closed *net.OpError
	switch {
	case errors.As(err, &refusal) && strings.HasPrefix(refusal.Code, "28"): // invalid authorization
		return fmt.Errorf("check the user, password and certificate in SLUICE_DATABASE_URL or "+
			"SLUICE_DATABASE_PASSWORD: %w", err)
	case errors.As(err, &certificate):
		return fmt.Errorf("the server's certificate is not trusted; check sslrootcert and the host in "+
			"SLUICE_DATABASE_URL: %w", err)
	case errors.As(err, &alert), errors.As(err, &closed) && closed.Op == "remote error":
		return fmt.Errorf("the server refused the handshake; check sslcert and sslkey in SLUICE_DATABASE_URL: %w", err)
	}
	return err
}

func takenBy(constraint string) string {
	switch constraint {
	case "tenant_slug_key":
		return "a tenant with this slug"
	case "rate_limit_rule_identity_key":
		return "a rule with this pattern, plan and name"
	case "api_key_pkey", "api_key_key_id_key":
		return "an API key with this id"
	case "account_email_key", "account_unproven_email_key":
		return "an account with this e-mail address"
	case "account_identity_issuer_subject_key":
		return "an account with this identity"
	case "member_pkey":
		return "this member"
	default:
		return "a row with this " + constraint
	}
}

func foundOne(rows int64, err error) error {
	if err == nil && rows == 0 {
		return rules.ErrNotFound
	}
	return err
}

func noSuchPlan(field, plan string) error {
	return rules.FieldErrors{{Field: field, Message: fmt.Sprintf("must be a plan of the tenant, and %q is none", plan)}}
}
