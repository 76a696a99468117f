-- name: ViolationsBefore :many
-- Looks at the newest look_at rows before a position that the index of by_… finds. The comparison of pairs is the
-- position; the one of times beside it leaves out partitions.
SELECT looked.* FROM (
    SELECT * FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id)
        AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
        AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
        AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
        AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
        AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
        AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(look_at)
) AS looked
WHERE (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
    AND (sqlc.arg(scope)::text = '' OR scope = sqlc.arg(scope)::text)
    AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
    AND (sqlc.arg(meter)::text = '' OR coalesce(nullif(meter, ''), 'requests') = sqlc.arg(meter)::text)
    AND (sqlc.arg(plan)::text = '' OR plan = sqlc.arg(plan)::text)
    AND (sqlc.arg(network)::text = '' OR ip_address <<= nullif(sqlc.arg(network)::text, '')::inet)
    AND (sqlc.arg(endpoint)::text = '' OR endpoint = sqlc.arg(endpoint)::text)
    AND (sqlc.arg(endpoint_prefix)::text = '' OR starts_with(endpoint, sqlc.arg(endpoint_prefix)::text))
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: LastLookedAt :many
-- Returns the last row that ViolationsBefore looks at, and the next one.
SELECT requested_at, violation_id FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
    AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
    AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
    AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
    AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT 2 OFFSET sqlc.arg(look_at)::bigint - 1;

-- name: Violation :one
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at = sqlc.arg(requested_at)
    AND violation_id = sqlc.arg(violation_id);

-- name: ViolationsArrived :many
-- Rows count by when they were written, up to so many seconds before a time (null: now).
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND recorded_at >= coalesce(sqlc.narg(since)::timestamptz,
        now()) - make_interval(secs => sqlc.arg(seconds)::double precision)
ORDER BY recorded_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationArrivedAt :one
SELECT recorded_at FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at = sqlc.arg(requested_at)
    AND violation_id = sqlc.arg(violation_id);

-- name: ViolationsInSteps :many
-- Looks at the newest rows that the index of by_… finds.
WITH newest AS MATERIALIZED (
    SELECT requested_at, count, rule_id, scope, mode, meter, plan, user_id, ip_address, endpoint
    FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at >= sqlc.arg(since) AND requested_at < sqlc.arg(until)
        AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
        AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
        AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
        AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(at_most)
), looked AS (SELECT count(*) AS rows, min(requested_at) AS back_to FROM newest)
SELECT date_bin(make_interval(secs => sqlc.arg(step_seconds)::double precision), requested_at,
    timestamptz '1970-01-01 00:00:00Z')::timestamptz AS at,
    coalesce(sum(count) FILTER (WHERE
        (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
        AND (sqlc.arg(scope)::text = '' OR scope = sqlc.arg(scope)::text)
        AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
        AND (sqlc.arg(meter)::text = '' OR coalesce(nullif(meter, ''), 'requests') = sqlc.arg(meter)::text)
        AND (sqlc.arg(plan)::text = '' OR plan = sqlc.arg(plan)::text)
        AND (sqlc.arg(user_id)::text = '' OR user_id = sqlc.arg(user_id)::text)
        AND (sqlc.arg(network)::text = '' OR ip_address <<= nullif(sqlc.arg(network)::text, '')::inet)
        AND (sqlc.arg(endpoint)::text = '' OR endpoint = sqlc.arg(endpoint)::text)
        AND (sqlc.arg(endpoint_prefix)::text = '' OR starts_with(endpoint, sqlc.arg(endpoint_prefix)::text))),
            0)::bigint AS checks,
    (SELECT rows FROM looked)::bigint AS looked_at, (SELECT back_to FROM looked)::timestamptz AS looked_back_to
FROM newest
GROUP BY 1
ORDER BY 1;
