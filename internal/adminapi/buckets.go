package adminapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const (
	maxUserBuckets = 500
	// tiersPerAsk keeps one question from blocking Redis; see enforce.Buckets.
	tiersPerAsk        = 64
	maxViolatedBuckets = 100
)

var noSharedStore = httpapi.NoSharedStore.Problem(
	"No Redis is configured, so buckets are in the memory of each api process, where this process cannot reach them.")

func (s *surface) ListBuckets(ctx context.Context,
	request openapi.ListBucketsRequestObject,
) (openapi.ListBucketsResponseObject, error) {
	if s.Buckets == nil {
		return nil, noSharedStore
	}
	if err := wrongUser(request.UserId); err != nil {
		return nil, err
	}
	tenant, err := s.tenantRules(requestOf(ctx).tenant.ID)
	if err != nil {
		return nil, err
	}
	plan := valueOf(request.Params.Plan)
	if _, err := tenant.PlanOf(&rules.Request{Plan: plan}); err != nil {
		return nil, wrongQuery("plan", "must be a plan of the tenant")
	}
	matches := tenant.UserBuckets(request.UserId, plan, s.Now(), maxUserBuckets+1)
	hasMore := len(matches) > maxUserBuckets
	matches = matches[:min(len(matches), maxUserBuckets)]
	fixed := len(matches)
	if matches, err = s.addViolated(ctx, tenant, request.UserId, matches); err != nil {
		return nil, err
	}
	tiers, err := s.lookInto(ctx, &tenant.Tenant, matches)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListBuckets200JSONResponse{Items: make([]openapi.Bucket, len(tiers)), HasMore: hasMore}
	for i := range tiers {
		answer.Items[i] = showBucket(&matches[i], &tiers[i])
		answer.Items[i].Overridden, _ = tenant.Stands(&matches[i], s.Now())
		if i >= fixed {
			answer.Items[i].Source = openapi.BucketSourceViolation
		}
	}
	return answer, nil
}

func (s *surface) addViolated(ctx context.Context, tenant *snapshot.Tenant, userID string,
	matches []rules.Match,
) ([]rules.Match, error) {
	recent, err := s.recentViolations(ctx, userID, maxViolatedBuckets)
	if err != nil {
		return nil, fmt.Errorf("list the buckets of a user's violations: %w", err)
	}
	seen := map[enforce.Key]bool{}
	for i := range matches {
		seen[enforce.KeyOf(&tenant.Tenant, &matches[i])] = true
	}
	for i := range recent {
		// A rule that changed since then has left keys without a bucket.
		key, err := enforce.ParseKey(tenant.Tenant.ID, recent[i].BucketKey())
		match, ok := enforce.BucketOf(tenant, key, s.Now())
		if err != nil || !ok {
			continue
		}
		if key := enforce.KeyOf(&tenant.Tenant, &match); !seen[key] {
			matches = append(matches, match)
			seen[key] = true
		}
	}
	return matches, nil
}

func (s *surface) lookInto(ctx context.Context, tenant *rules.Tenant, matches []rules.Match) ([]enforce.Tier, error) {
	tiers := make([]enforce.Tier, len(matches))
	for i := range matches {
		tiers[i] = enforce.Tier{Key: enforce.KeyOf(tenant, &matches[i]), Limit: matches[i].Limit}
	}
	var checks []enforce.BucketCheck
	for some := range slices.Chunk(tiers, tiersPerAsk) {
		checks = append(checks, enforce.BucketCheck{Tiers: some})
	}
	if len(checks) == 0 {
		return nil, nil
	}
	if err := s.Buckets.Take(ctx, checks); err != nil {
		return nil, fmt.Errorf("%w (%w)", bucketsUnchanged, err)
	}
	return tiers, nil
}

var (
	bucketsUnchanged = httpapi.Unavailable.Problem(
		"The store of buckets refused or failed, and the buckets are as they were; try again, or look into the " +
			"server's log.")
	changeUnknown = httpapi.Unavailable.Problem(
		"The store of buckets gave no answer; the bucket is as it was, or changed once. Look again.")
	changeLost = httpapi.Unavailable.Problem(
		"The store of buckets gave no answer; send the request again with the same Idempotency-Key, to make the " +
			"change once.")
)

func showBucket(m *rules.Match, t *enforce.Tier) openapi.Bucket {
	rule, bucket := m.Rule, &t.Bucket
	var lent *openapi.LentTokens
	if t.Out > 0 {
		lent = &openapi.LentTokens{Tokens: tokens(t.Out), Processes: t.Holders}
	}
	return openapi.Bucket{
		Lent:      lent,
		BucketKey: t.Key.Text(), RuleId: openapi.ID(rule.ID), KeyPattern: rule.Pattern.String(), Name: rule.Name,
		Scope: openapi.Scope(rule.Scope()), Mode: openapi.Mode(m.Mode), Plan: orNull(rule.Plan),
		Tokens: tokens(bucket.Level.Micros), BurstCapacity: bucket.Limit.Burst, RatePerSecond: bucket.Limit.Rate,
		RateUnit:  openapi.RateUnit(rule.RateUnit),
		Algorithm: openapi.Algorithm(bucket.Limit.Kind.Algorithm()), LimitText: rule.Describe(bucket.Limit),
		Window:       showWindow(m, bucket),
		ResetAfterMs: int64((t.TimeToFull() + time.Millisecond - 1) / time.Millisecond),
		Source:       openapi.BucketSourceUser,
		Meter:        rule.Meter.Word(),
	}
}

func showWindow(m *rules.Match, bucket *enforce.Bucket) nullable.Nullable[openapi.BucketWindow] {
	if bucket.Limit.Kind != rules.KindFixedWindow {
		return nullable.NewNullNullable[openapi.BucketWindow]()
	}
	start, end := bucket.Limit.WindowAt(bucket.Stamp)
	zone := "UTC"
	if m.Rule.Window.Zone != "" && !m.IsOwn {
		zone = m.Rule.Window.Zone
	}
	return nullable.NewNullableWithValue(openapi.BucketWindow{
		StartsAt: time.UnixMicro(start).UTC(), EndsAt: time.UnixMicro(end).UTC(), Zone: zone,
	})
}

func tokens(amount enforce.Tokens) float64 { return float64(max(amount, 0)) / float64(enforce.Token) }

func (s *surface) ResetBucket(ctx context.Context,
	request openapi.ResetBucketRequestObject,
) (openapi.ResetBucketResponseObject, error) {
	answer, err := s.changeBucket(ctx, request.UserId, request.Body.BucketKey, auth.AuditReset, enforce.Fill)
	return openapi.ResetBucket200JSONResponse{TheBucketChangeJSONResponse: answer}, err
}

func (s *surface) CreditBucket(ctx context.Context,
	request openapi.CreditBucketRequestObject,
) (openapi.CreditBucketResponseObject, error) {
	amount, ok := exactTokens(request.Body.Tokens)
	if !ok {
		return nil, wrongBody("/tokens", "must have at most 6 decimals")
	}
	answer, err := s.changeBucket(ctx, request.UserId, request.Body.BucketKey, auth.AuditCredit, amount)
	return openapi.CreditBucket200JSONResponse{TheBucketChangeJSONResponse: answer}, err
}

// exactTokens refuses more than 6 decimals. Up to a thousand million, the shortest decimal of a float64 is as it was
// sent.
func exactTokens(number float64) (enforce.Tokens, bool) {
	_, decimals, _ := strings.Cut(strconv.FormatFloat(number, 'f', -1, 64), ".")
	return enforce.Tokens(math.Round(number * float64(enforce.Token))), len(decimals) <= 6
}

func (s *surface) changeBucket(
	ctx context.Context, userID, text string, action auth.AuditAction, amount enforce.Tokens,
) (openapi.TheBucketChangeJSONResponse, error) {
	var answer openapi.TheBucketChangeJSONResponse
	if s.Buckets == nil {
		return answer, noSharedStore
	}
	if err := wrongUser(userID); err != nil {
		return answer, err
	}
	tenantID := requestOf(ctx).tenant.ID
	tenant, err := s.tenantRules(tenantID)
	if err != nil {
		return answer, err
	}
	key, err := enforce.ParseKey(tenantID, text)
	match, ok := enforce.BucketOf(tenant, key, s.Now())
	if err == nil && ok {
		key = enforce.KeyOf(&tenant.Tenant, &match)
		ok, err = s.isOf(ctx, tenant, &match, userID)
		if err != nil {
			return answer, err
		}
	}
	if err != nil || !ok {
		return answer, wrongBody("/bucket_key", "must be the bucket_key of one of the user's buckets")
	}
	object := auth.AuditObject{Kind: "bucket", ID: key.Text()}
	err = s.store(ctx).RecordChange(ctx, tenantID, object, action, func(ctx context.Context) (any, any, error) {
		before, after, isRepeated, err := s.credit(ctx, requestOf(ctx).creditID(), key, match.Limit, amount)
		if err != nil {
			return nil, nil, err
		}
		if isRepeated {
			answer.Repeated = &isRepeated
		}
		answer.BucketKey, answer.BurstCapacity = key.Text(), after.Limit.Burst
		answer.TokensBefore, answer.TokensAfter = tokens(before.Level.Micros), tokens(after.Level.Micros)
		owner := match.Owner()
		return bucketState{owner, answer.TokensBefore, isRepeated}, bucketState{owner, answer.TokensAfter, isRepeated},
			nil
	})
	return answer, err
}

// credit returns rules.ErrOutcomeUnknown if the store's answer was lost.
func (s *surface) credit(
	ctx context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	if id == "" {
		before, after, err = s.Buckets.Credit(ctx, key, limit, amount)
	} else {
		before, after, isRepeated, err = s.Buckets.CreditOnce(ctx, id, key, limit, amount)
	}
	switch {
	case errors.Is(err, enforce.ErrCreditIDReused):
		err = httpapi.Conflict.Problem("This Idempotency-Key was sent with another bucket or amount; choose a new one.")
	case errors.Is(err, enforce.ErrNothingTaken):
		err = fmt.Errorf("%w (%w)", bucketsUnchanged, err)
	case err != nil && id != "":
		err = fmt.Errorf("%w: %w (%w)", rules.ErrOutcomeUnknown, changeLost, err)
	case err != nil:
		err = fmt.Errorf("%w: %w (%w)", rules.ErrOutcomeUnknown, changeUnknown, err)
	}
	return before, after, isRepeated, err
}

// isOf reports whether a bucket belongs to a user, or is a shared one that the user has run into.
func (s *surface) isOf(ctx context.Context, tenant *snapshot.Tenant, match *rules.Match, userID string) (bool, error) {
	if owner := match.Owner(); owner != "" {
		return owner == userID, nil
	}
	shared, err := s.addViolated(ctx, tenant, userID, nil)
	return slices.ContainsFunc(shared, func(m rules.Match) bool {
		return enforce.KeyOf(&tenant.Tenant, &m) == enforce.KeyOf(&tenant.Tenant, match)
	}), err
}

type bucketState struct {
	UserID string  `json:"user_id,omitempty"` // empty for a shared bucket
	Tokens float64 `json:"tokens"`
	// IsRepeated means that the change was made by an earlier request with the same key.
	IsRepeated bool `json:"repeated,omitempty"`
}
