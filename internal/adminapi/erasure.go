package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	// maxExported caps each list of an export.
	maxExported = 10_000
	// longestKept is longer than violations can be kept.
	longestKept = 401 * 24 * time.Hour
)

// ExportUserData handles GET …/users/{user_id}/data.
func (s *surface) ExportUserData(ctx context.Context,
	request openapi.ExportUserDataRequestObject,
) (openapi.ExportUserDataResponseObject, error) {
	userID, tenant, now := request.UserId, requestOf(ctx).tenant.ID, s.Now()
	if err := wrongUser(userID); err != nil {
		return nil, err
	}
	assignment, err := s.assignment(ctx, userID)
	if err != nil {
		return nil, err
	}
	overrides, err := s.Stores.OverridesOfUser(ctx, tenant, userID, 0, maxExported+1)
	if err != nil {
		return nil, err
	}
	counts, err := s.Stores.CountsOfUser(ctx, tenant, userID)
	if err != nil {
		return nil, err
	}
	entries, err := s.Stores.AuditOfUser(ctx, tenant, userID, maxExported+1)
	if err != nil {
		return nil, err
	}
	crossings, err := s.Violations.Crossings(ctx, tenant, violations.CrossingFilter{UserID: userID},
		violations.CrossingPlace{}, maxExported+1)
	if err != nil {
		return nil, err
	}
	last := monthOf(now)
	usage, err := s.Stores.MonthsOfUser(ctx, tenant, userID, monthsUntil(last.AddDate(0, 1-maxMonths, 0), last))
	if err != nil {
		return nil, err
	}
	answer := openapi.UserData{
		UserId: userID, ExportedAt: now.UTC(), Plan: orNull(assignment.Plan),
		Complete:   max(len(overrides), len(counts), len(entries), len(crossings)) <= maxExported,
		Overrides:  itemsOf(overrides[:min(len(overrides), maxExported)], s.showOverride),
		Violations: []openapi.Violation{},
		Crossings:  itemsOf(crossings[:min(len(crossings), maxExported)], showCrossing),
		Counts: itemsOf(counts[:min(len(counts), maxExported)], func(c *rules.SubjectCount) openapi.SubjectCount {
			return openapi.SubjectCount{
				RuleId: int64(c.Rule), Subject: c.Subject, FirstAt: c.First, LastAt: c.Last,
				Denied: c.Denied,
			}
		}),
		Usage: itemsOf(usage, showUserMonth),
		Audit: []openapi.AuditEntry{},
	}
	filter := violations.Filter{Since: now.Add(-longestKept), Until: now.Add(time.Hour), UserID: userID}
	for violation, err := range s.Violations.AllViolations(ctx, tenant, &filter) {
		if err != nil {
			return nil, err
		}
		if len(answer.Violations) == maxExported {
			answer.Complete = false
			break
		}
		answer.Violations = append(answer.Violations, showViolation(&violation))
	}
	for i := range entries[:min(len(entries), maxExported)] {
		shown, err := showEntry(&entries[i])
		if err != nil {
			return nil, err
		}
		answer.Audit = append(answer.Audit, shown)
	}
	return openapi.ExportUserData200JSONResponse(answer), nil
}

// erasePatience is above the longest statement of an erasure.
const erasePatience = 6 * time.Minute

// EraseUser handles POST …/users/{user_id}/erase.
func (s *surface) EraseUser(ctx context.Context,
	request openapi.EraseUserRequestObject,
) (openapi.EraseUserResponseObject, error) {
	userID := request.UserId
	if err := wrongUser(userID); err != nil {
		return nil, err
	}
	if request.Body.Confirm != userID {
		return nil, httpapi.BodyProblem([]httpapi.FieldError{{Pointer: "/confirm", Detail: "must be the user's id"}})
	}
	_ = http.NewResponseController(requestOf(ctx).w).SetWriteDeadline(time.Now().Add(erasePatience))
	erased, err := s.store(ctx).EraseUser(ctx, requestOf(ctx).tenant.ID, userID)
	if err != nil {
		return nil, err
	}
	buckets, err := s.fillBuckets(ctx, userID)
	if err != nil {
		return nil, fmt.Errorf("fill the buckets of a user who was erased: %w", err)
	}
	return openapi.EraseUser200JSONResponse{
		ReceiptId: erased.ID, ErasedAt: erased.At, Assignments: erased.Assignments, Overrides: erased.Overrides,
		Violations: erased.Violations, Crossings: erased.Crossings, Counts: erased.Counts,
		Deliveries: erased.Deliveries, AuditEntries: erased.AuditEntries,
		Buckets: buckets, Rules: itemsOf(erased.Rules, func(id *rules.RuleID) int64 { return int64(*id) }),
	}, nil
}

// fillBuckets fills the buckets that a user id alone determines, and puts them on their rules' limits. The limit is as
// of now, because an override that was erased left no trace, and a bucket keeps the later one of two limits. A full
// bucket expires when it is not used.
func (s *surface) fillBuckets(ctx context.Context, userID string) (filled int64, err error) {
	if s.Buckets == nil {
		return 0, nil
	}
	tenant, err := s.tenantRules(requestOf(ctx).tenant.ID)
	if err != nil {
		return 0, err
	}
	matches := tenant.UserBuckets(userID, "", s.Now(), maxUserBuckets)
	for i := range matches {
		if matches[i].Owner() != userID {
			continue // a shared one
		}
		limit := matches[i].Rule.Limit()
		limit.Since = max(limit.Since, matches[i].Limit.Since+1, s.Now().UnixMicro())
		if _, _, err := s.Buckets.Credit(ctx, enforce.KeyOf(&tenant.Tenant, &matches[i]), limit,
			enforce.Fill); err != nil {
			return filled, fmt.Errorf("%w (%w)", bucketsAway, err)
		}
		filled++
	}
	return filled, nil
}
