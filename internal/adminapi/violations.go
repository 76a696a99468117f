package adminapi

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	maxBeside = 100
	maxRecent = 20
	// ahead is more than the 5 minutes by which a clock may be fast.
	ahead = 10 * time.Minute
)

func showViolation(v *violations.Violation) openapi.Violation {
	queue, queues := v.Queue()
	return openapi.Violation{
		ViolationId: v.ID.String(), RequestedAt: v.ID.At.UTC(), LastAt: v.LastAt.UTC(), Count: v.Count,
		RuleId: openapi.ID(v.Rule), RuleVersion: v.Version, BucketKey: v.BucketKey(),
		Scope: openapi.Scope(v.Scope), Mode: openapi.Mode(v.Mode), Reason: openapi.Reason(v.Reason),
		KeyPattern: v.Pattern, RatePerSecond: v.Rate, BurstCapacity: v.Burst,
		Algorithm: openapi.Algorithm(cmp.Or(v.Algorithm, rules.TokenBucket)), LimitText: v.LimitText,
		Meter:  v.Meter.Word(),
		UserId: orNull(v.UserID), IpAddress: orNullIf(v.IP.IsValid(), v.IP.String()), Endpoint: orNull(v.Endpoint),
		Method: orNull(v.Method), Plan: orNull(v.Plan), Cost: v.Cost.Float(),
		TokensAtTime: orNullIf(v.TokensKnown, max(v.Tokens, 0).Float()),
		QueueMs:      orNullIf(queues, int64((queue+time.Millisecond-1)/time.Millisecond)),
		RetryAfterMs: orNull(v.RetryAfter.Milliseconds()),
	}
}

// violationFilter selects everything that is kept by default.
func violationFilter(query url.Values, now time.Time) (violations.Filter, error) {
	filter := violations.Filter{
		Until: now.Add(ahead), Scope: rules.Scope(query.Get("scope")), Mode: rules.Mode(query.Get("mode")),
		Meter: query.Get("meter"), Plan: query.Get("plan"), UserID: query.Get("user_id"),
		Endpoint: query.Get("endpoint"),
	}
	if prefix, ok := strings.CutSuffix(filter.Endpoint, "*"); ok {
		filter.Endpoint, filter.EndpointPrefix = "", prefix
	}
	var err error
	if text := query.Get("rule_id"); text != "" {
		rule, parseErr := parseInt(text)
		if parseErr != nil {
			return filter, wrongQuery("rule_id", "must be a whole number")
		}
		filter.Rule = rules.RuleID(rule)
	}
	if filter.Since, err = timeIn(query, "from", filter.Since); err != nil {
		return filter, err
	}
	if filter.Until, err = timeIn(query, "until", filter.Until); err != nil {
		return filter, err
	}
	if !filter.Since.Before(filter.Until) {
		return filter, wrongQuery("from", "must be before until")
	}
	if text := query.Get("ip"); text != "" {
		if filter.IP, err = parseNetwork(text); err != nil {
			return filter, wrongQuery("ip", "must be an address or a network, such as 203.0.113.9 or 2001:db8::/32")
		}
	}
	return filter, nil
}

func timeIn(query url.Values, name string, otherwise time.Time) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, wrongQuery(name, "must be a time, such as 2026-11-20T12:00:00Z")
	}
	return at, nil
}

// IPv4 mapped into IPv6 becomes IPv4, as in records.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return network, err
		}
		address = rules.PlainIP(address)
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return rules.PlainNetwork(network).Masked(), nil
}

func wrongQuery(name, detail string) error {
	return httpapi.InvalidRequest.Problem("Correct the parameters listed in errors.",
		httpapi.FieldError{Pointer: "/query/" + name, Detail: detail})
}

func (s *surface) ListViolations(ctx context.Context,
	request openapi.ListViolationsRequestObject,
) (openapi.ListViolationsResponseObject, error) {
	q := requestOf(ctx)
	before, err := after[violations.ID](ctx)
	if err != nil {
		return nil, err
	}
	filter, err := violationFilter(q.r.URL.Query(), s.Now())
	if err != nil {
		return nil, err
	}
	found, err := s.Violations.Violations(ctx, q.tenant.ID, &filter, before, limitOf(request.Params.Limit))
	return openapi.ListViolations200JSONResponse{
		Items: itemsOf(found.Violations, showViolation), NextCursor: next(ctx, found.Next),
		ScannedUntil: timeOrNull(found.Next.At),
	}, err
}

func (s *surface) GetViolation(ctx context.Context,
	request openapi.GetViolationRequestObject,
) (openapi.GetViolationResponseObject, error) {
	tenant := requestOf(ctx).tenant.ID
	id, err := violations.ParseID(request.ViolationId)
	if err != nil {
		return nil, err
	}
	violation, err := s.Violations.Violation(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	denied, err := s.Violations.DeniedInMinute(ctx, &violation)
	if err != nil {
		return nil, err
	}
	beside, err := s.Violations.ViolationsBeside(ctx, &violation, maxBeside)
	if err != nil {
		return nil, err
	}
	answer := openapi.GetViolation200JSONResponse{
		Violation: showViolation(&violation), Rule: nullable.NewNullNullable[openapi.Rule](),
		DeniedInMinute: denied, Beside: itemsOf(beside, showViolation),
	}
	switch rule, err := s.Stores.Rule(ctx, tenant, violation.Rule); {
	case err == nil:
		answer.Rule.Set(showRule(&rule))
	case !errors.Is(err, rules.ErrNotFound):
		return nil, err
	}
	return answer, nil
}

func (s *surface) recentViolations(ctx context.Context, userID string, limit int) ([]violations.Violation, error) {
	filter := violations.Filter{Until: s.Now().Add(ahead), UserID: userID}
	found, err := s.Violations.Violations(ctx, requestOf(ctx).tenant.ID, &filter, violations.ID{}, limit)
	return found.Violations, err
}
