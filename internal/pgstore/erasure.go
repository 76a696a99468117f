package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ rules.UserRecords = (*Store)(nil)

// EraseUser erases a user from what is stored of a tenant: it removes the plan, overrides and crossings, and makes
// violations, counts, deliveries and the audit log anonymous. It is not one transaction: repeat it after an error.
// Checks in flight may still record the user, and other processes keep the user's plan and overrides for up to a
// minute.
//
// The first transaction locks the tenant. The second one reads all of the tenant's counts, because a user may be part
// of a subject; it takes at most five minutes and locks nobody. The audit entry that is the receipt comes last.
func (s Writer) EraseUser(ctx context.Context, tenant rules.TenantID, userID string) (erased rules.Erasure, err error) {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	erased = rules.Erasure{ID: "erased-" + hex.EncodeToString(random), At: time.Now().UTC()}
	writer := s.acting("erase user")
	// Only the receipt marks the request as carried out, so a request that ended midway can be repeated.
	err = writer.inBulk(auth.WithoutIdempotency(ctx), tenant, func(ctx context.Context, w write) error {
		return w.erase(ctx, userID, &erased)
	})
	if err == nil {
		err = s.eraseSubjects(ctx, tenant, userID, &erased)
	}
	if err == nil {
		erased.Blocks, err = s.eraseTraffic(ctx, tenant, userID)
	}
	if err == nil {
		err = writer.writeReceipt(ctx, tenant, &erased)
	}
	if err != nil {
		return rules.Erasure{}, fmt.Errorf("erase a user of tenant %d: %w", tenant, err)
	}
	return erased, nil
}

func (w write) erase(ctx context.Context, userID string, erased *rules.Erasure) (err error) {
	if erased.Assignments, err = w.EraseAssignment(ctx, w.tenant, userID); err != nil {
		return err
	}
	if erased.Overrides, err = w.EraseOverrides(ctx, w.tenant, userID); err != nil {
		return err
	}
	if erased.Violations, err = w.EraseViolations(ctx, w.tenant, userID); err != nil {
		return err
	}
	if erased.Crossings, err = w.EraseCrossings(ctx, w.tenant, userID); err != nil {
		return err
	}
	// After the others, whose triggers log what they did.
	if erased.AuditEntries, err = w.EraseFromAudit(ctx, int64(w.tenant), userID, erased.ID); err != nil {
		return err
	}
	// Late, because recorders wait for these rows.
	if erased.Counts, err = w.EraseUserMonths(ctx, w.tenant, userID); err != nil {
		return err
	}
	named, err := w.PatternsWith(ctx, w.tenant, userID)
	for _, row := range named {
		pattern, err := rules.ParsePattern(row.KeyPattern)
		if match := (rules.Match{Rule: &rules.Rule{Pattern: pattern}}); err == nil && match.Owner() == userID {
			erased.Rules = append(erased.Rules, row.RuleID)
		}
	}
	return err
}

// eraseSubjects moves the counts of a user's subjects to those of all other subjects, and takes the subjects from
// deliveries.
func (s *Store) eraseSubjects(ctx context.Context, tenant rules.TenantID, userID string, erased *rules.Erasure) error {
	return writeError(s.transaction(ctx, classLoad, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		counted, err := q.CountedSubjectsWith(ctx, tenant, userID)
		if err != nil {
			return err
		}
		for _, row := range counted {
			if !isSubjectOf(row.KeyPattern, row.Subject, userID) {
				continue
			}
			if err := q.CountSubjectAsOther(ctx, tenant, row.RuleID, row.Subject); err != nil {
				return err
			}
			rows, err := q.EraseSubject(ctx, tenant, row.RuleID, row.Subject)
			if err != nil {
				return err
			}
			erased.Counts += rows
		}
		deliveries, err := q.DeliveriesWith(ctx, tenant, userID)
		if err != nil {
			return err
		}
		for _, row := range deliveries {
			if !isSubjectOf(row.KeyPattern, row.Subject, userID) {
				continue
			}
			rows, err := q.EraseDelivery(ctx, tenant, row.DeliveryID)
			if err != nil {
				return err
			}
			erased.Deliveries += rows
		}
		return nil
	}))
}

// CountsOfUser returns how often the user's buckets were denied. It reads all of the tenant's counts.
func (s *Store) CountsOfUser(ctx context.Context, tenant rules.TenantID, userID string) (counts []rules.SubjectCount,
	err error,
) {
	rows, err := askMuch(ctx, s, only(tenant),
		func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.CountedSubjectsWithRow, error) {
			return q.CountedSubjectsWith(ctx, tenant, userID)
		})
	if err != nil {
		return nil, fmt.Errorf("read the counts of a user: %w", err)
	}
	for _, row := range rows {
		if isSubjectOf(row.KeyPattern, row.Subject, userID) {
			counts = append(counts, rules.SubjectCount{
				Rule: row.RuleID, Subject: row.Subject, First: row.FirstAt.UTC(), Last: row.LastAt.UTC(),
				Denied: row.Denied,
			})
		}
	}
	return counts, nil
}

// AuditOfUser returns up to limit entries that name a user, the latest first. It reads all entries about overrides and
// buckets.
func (s *Store) AuditOfUser(ctx context.Context, tenant rules.TenantID, userID string, limit int) ([]auth.AuditEntry,
	error,
) {
	rows, err := askMuch(ctx, s, only(tenant),
		func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.AuditEvent, error) {
			return q.AuditOfUser(ctx, tenant, userID, rowLimit(limit))
		})
	if err != nil {
		return nil, fmt.Errorf("read the audit entries about a user: %w", err)
	}
	return each(rows, auditEntryFromRow), nil
}

// isSubjectOf reports whether a pattern's subject is one of a user.
func isSubjectOf(pattern, subject, userID string) bool {
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		return false
	}
	user, ok := parsed.UserOfSubject(subject)
	return ok && user == userID
}

// writeReceipt logs an erasure under its id.
func (s Writer) writeReceipt(ctx context.Context, tenant rules.TenantID, erased *rules.Erasure) error {
	after, err := auditImage(map[string]any{
		"assignments": erased.Assignments, "overrides": erased.Overrides, "violations": erased.Violations,
		"crossings":  erased.Crossings,
		"counts":     erased.Counts,
		"deliveries": erased.Deliveries, "traffic_blocks": erased.Blocks, "audit_entries": erased.AuditEntries,
		"rules": erased.Rules,
	})
	if err != nil {
		return err
	}
	return s.writeEntry(ctx, tenant, dbsqlc.WriteAuditParams{
		TenantID: int64(tenant), Action: "remove", ObjectKind: "user", ObjectID: erased.ID, After: after,
	}, nil)
}
