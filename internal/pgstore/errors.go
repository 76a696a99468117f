package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/rules"
)

// The SQLSTATEs that mean something to the domain.
const (
	stateUniqueViolation = "23505"
	stateCheckViolation  = "23514"
	stateBadText         = "22021" // a NUL, or bytes that are not UTF-8
)

// writeError is domainError for a write. Text that cannot be stored is what is wrong with it, whereas
// one who looks for such text finds nothing.
func writeError(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == stateBadText {
		return rules.FieldErrors{{Field: "text", Message: "must be valid UTF-8 without a NUL byte"}}
	}
	return domainError(err)
}

// domainError is the one place where the database's errors become the domain's. What has no meaning
// there stays as it is, and so does what has become the domain's already.
func domainError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, rules.ErrNotFound) {
		return fmt.Errorf("%w (%w)", rules.ErrNotFound, err)
	}
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) {
		return err
	}
	switch {
	case refusal.Code == stateUniqueViolation:
		return fmt.Errorf("%s %w", takenBy(refusal.ConstraintName), rules.ErrExists)
	case refusal.Code == stateCheckViolation && refusal.ConstraintName == "rate_limit_override_expires_at_check":
		return rules.FieldErrors{{Field: "expires_at", Message: "must be in the future"}}
	case refusal.Code == stateBadText:
		return fmt.Errorf("text with a NUL or invalid UTF-8 is never stored: %w", rules.ErrNotFound)
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
	case "account_email_key":
		return "an account with this e-mail address"
	case "member_pkey":
		return "this member"
	default:
		return "a row with this " + constraint
	}
}

// foundOne is rules.ErrNotFound if a statement that should touch a row touched none.
func foundOne(rows int64, err error) error {
	if err == nil && rows == 0 {
		return rules.ErrNotFound
	}
	return err
}

// noSuchPlan is the error for a reference to a plan that the tenant does not have.
func noSuchPlan(field, plan string) error {
	return rules.FieldErrors{{Field: field, Message: fmt.Sprintf("must be a plan of the tenant, and %q is none", plan)}}
}
