-- name: UserMonths :many
SELECT tenant_id, month, user_id, meter, allowed, denied,
    least(trunc(greatest(cost_taken, 0)), 9e18)::bigint AS cost,
    (mod(greatest(cost_taken, 0), 1) * 1000000)::bigint AS cost_parts
FROM user_month
WHERE tenant_id = sqlc.arg(tenant_id) AND month = sqlc.arg(month)
    AND (user_id, meter) >= (sqlc.arg(from_user)::text, sqlc.arg(from_meter)::text)
    AND ((user_id, meter) > (sqlc.arg(from_user)::text, sqlc.arg(from_meter)::text) OR sqlc.arg(is_first)::boolean)
ORDER BY user_id, meter
LIMIT sqlc.arg(page_size);

-- name: MonthsOfUser :many
SELECT tenant_id, month, user_id, meter, allowed, denied,
    least(trunc(greatest(cost_taken, 0)), 9e18)::bigint AS cost,
    (mod(greatest(cost_taken, 0), 1) * 1000000)::bigint AS cost_parts
FROM user_month
WHERE tenant_id = sqlc.arg(tenant_id) AND month = ANY (sqlc.arg(months)::date[]) AND user_id = sqlc.arg(user_id)
ORDER BY month, meter;

-- name: KnownUsers :many
-- Finds users with a plan, an override, a check in one of two months, or a denial among the newest at_most rows. The id
-- itself is found by any denial.
SELECT k.user_id::text AS user_id, coalesce(max(k.plan), '')::text AS plan
FROM (
    (SELECT a.user_id, a.plan FROM plan_assignment AS a
    WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.removed_at IS NULL AND starts_with(a.user_id, sqlc.arg(prefix)::text)
    ORDER BY a.user_id
    LIMIT sqlc.arg(page_size)::integer)
    UNION ALL
    (SELECT DISTINCT o.user_id, NULL FROM rate_limit_override AS o
    WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.removed_at IS NULL AND starts_with(o.user_id, sqlc.arg(prefix)::text)
    ORDER BY o.user_id
    LIMIT sqlc.arg(page_size)::integer)
    UNION ALL
    (SELECT m.user_id, NULL FROM user_month AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.month = sqlc.arg(month) AND m.meter = ''
        AND starts_with(m.user_id, sqlc.arg(prefix)::text)
    ORDER BY m.user_id
    LIMIT sqlc.arg(page_size)::integer)
    UNION ALL
    (SELECT l.user_id, NULL FROM user_month AS l
    WHERE l.tenant_id = sqlc.arg(tenant_id) AND l.month = sqlc.arg(month_before) AND l.meter = ''
        AND starts_with(l.user_id, sqlc.arg(prefix)::text)
    ORDER BY l.user_id
    LIMIT sqlc.arg(page_size)::integer)
    UNION ALL
    (SELECT DISTINCT d.user_id, NULL FROM (
        SELECT v.user_id FROM rate_limit_violation AS v
        WHERE v.tenant_id = sqlc.arg(tenant_id) AND v.requested_at >= sqlc.arg(month_before)::date
        ORDER BY v.requested_at DESC, v.violation_id DESC
        LIMIT sqlc.arg(at_most)::bigint
    ) AS d
    WHERE starts_with(d.user_id, sqlc.arg(prefix)::text))
    UNION ALL
    (SELECT e.user_id, NULL FROM rate_limit_violation AS e
    WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.user_id = sqlc.arg(prefix)::text
    LIMIT 1)
) AS k
WHERE k.user_id <> ''
GROUP BY k.user_id
ORDER BY k.user_id
LIMIT sqlc.arg(page_size)::integer;

-- name: EraseUserMonths :one
-- Goes by month, because the index begins with it and all tenants' counts wait meanwhile.
WITH erased AS (
    DELETE FROM user_month AS m WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.user_id = sqlc.arg(user_id)
        AND m.month = ANY (ARRAY(SELECT of_tenant.month FROM month_users AS of_tenant
            WHERE of_tenant.tenant_id = sqlc.arg(tenant_id)))
        RETURNING m.month, m.meter
), room AS (
    UPDATE month_users AS u SET users = greatest(0, u.users - 1)
    FROM erased AS e
    WHERE u.tenant_id = sqlc.arg(tenant_id) AND u.month = e.month AND e.meter = '' AND sqlc.arg(user_id) <> ''
)
SELECT count(DISTINCT e.month) FROM erased AS e;
