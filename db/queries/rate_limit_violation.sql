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

-- name: TopOfViolations :many
-- The values that most violations share, of the newest so many; '' is those without one.
WITH newest AS MATERIALIZED (
    SELECT CASE sqlc.arg(dimension)::text WHEN 'user' THEN user_id WHEN 'ip' THEN host(ip_address) WHEN 'endpoint' THEN endpoint END AS value,
        count, requested_at, last_at
    FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at >= sqlc.arg(since) AND requested_at < sqlc.arg(until)
        AND (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
        AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(at_most)
)
SELECT coalesce(value, '')::text AS value, sum(count)::bigint AS violations, max(last_at)::timestamptz AS last_at,
    (SELECT count(*) FROM newest)::bigint AS looked_at, (SELECT min(requested_at) FROM newest)::timestamptz AS looked_back_to
FROM newest
GROUP BY value
ORDER BY violations DESC, value
LIMIT sqlc.arg(page_size);
