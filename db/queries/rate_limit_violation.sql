-- The pages are of rows before a position, newest first. The comparison of pairs is what the position
-- means; the one of times beside it is what leaves out partitions.

-- name: ViolationsBefore :many
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationsOfRuleBefore :many
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id)
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationsOfUserBefore :many
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id)::text
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationsFromAddressBefore :many
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND ip_address = sqlc.arg(ip_address)::inet
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationsAtEndpointBefore :many
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND endpoint = sqlc.arg(endpoint)::text
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: Violation :one
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at = sqlc.arg(requested_at) AND violation_id = sqlc.arg(violation_id);

-- name: ViolationsArrived :many
-- Those that were written up to so many seconds before a time (null: now) or after it, the latest first,
-- whenever they happened.
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND recorded_at >= coalesce(sqlc.narg(since)::timestamptz, now()) - make_interval(secs => sqlc.arg(seconds)::double precision)
ORDER BY recorded_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationArrivedAt :one
SELECT recorded_at FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at = sqlc.arg(requested_at) AND violation_id = sqlc.arg(violation_id);

-- name: ViolationsInSteps :many
-- How many checks the violations that a filter wants stand for, per step. The newest so many rows are looked at that
-- have what an index finds: one of user, address, endpoint and rule is given as by_…, the others are empty.
WITH newest AS MATERIALIZED (
    SELECT requested_at, count, rule_id, scope, mode, plan, user_id, ip_address, endpoint
    FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at >= sqlc.arg(since) AND requested_at < sqlc.arg(until)
        AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
        AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
        AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
        AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(at_most)
), looked AS (SELECT count(*) AS rows, min(requested_at) AS back_to FROM newest)
SELECT date_bin(make_interval(secs => sqlc.arg(step_seconds)::double precision), requested_at, timestamptz '1970-01-01 00:00:00Z')::timestamptz AS at,
    coalesce(sum(count) FILTER (WHERE
        (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
        AND (sqlc.arg(scope)::text = '' OR scope = sqlc.arg(scope)::text)
        AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
        AND (sqlc.arg(plan)::text = '' OR plan = sqlc.arg(plan)::text)
        AND (sqlc.arg(user_id)::text = '' OR user_id = sqlc.arg(user_id)::text)
        AND (sqlc.arg(network)::text = '' OR ip_address <<= nullif(sqlc.arg(network)::text, '')::inet)
        AND (sqlc.arg(endpoint)::text = '' OR endpoint = sqlc.arg(endpoint)::text)
        AND (sqlc.arg(endpoint_prefix)::text = '' OR starts_with(endpoint, sqlc.arg(endpoint_prefix)::text))), 0)::bigint AS checks,
    (SELECT rows FROM looked)::bigint AS looked_at, (SELECT back_to FROM looked)::timestamptz AS looked_back_to
FROM newest
GROUP BY 1
ORDER BY 1;

-- name: TopOfViolations :many
-- The values that most violations share, of the newest so many that are looked at; '' is those without one. The
-- mode has no index, so rows of the other one are looked at too: a value may have no violations.
WITH newest AS MATERIALIZED (
    SELECT CASE sqlc.arg(dimension)::text WHEN 'user' THEN user_id WHEN 'ip' THEN host(ip_address) WHEN 'endpoint' THEN endpoint END AS value,
        sqlc.arg(mode)::text IN ('', mode) AS wanted, count, requested_at, last_at
    FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at >= sqlc.arg(since) AND requested_at < sqlc.arg(until)
        AND (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(at_most)
)
SELECT coalesce(value, '')::text AS value, coalesce(sum(count) FILTER (WHERE wanted), 0)::bigint AS violations,
    coalesce(max(last_at) FILTER (WHERE wanted), max(last_at))::timestamptz AS last_at,
    (SELECT count(*) FROM newest)::bigint AS looked_at, (SELECT min(requested_at) FROM newest)::timestamptz AS looked_back_to
FROM newest
GROUP BY value
ORDER BY violations DESC, value
LIMIT sqlc.arg(page_size);
