-- name: UserMonths :many
-- A page of the users of a month.
SELECT tenant_id, month, user_id, allowed, denied, least(trunc(cost_taken), 9e18)::bigint AS cost,
    (mod(cost_taken, 1) * 1000000)::bigint AS cost_parts
FROM user_month
WHERE tenant_id = sqlc.arg(tenant_id) AND month = sqlc.arg(month) AND user_id >= sqlc.arg(from_user)
    AND (user_id > sqlc.arg(from_user) OR sqlc.arg(is_first)::boolean)
ORDER BY user_id
LIMIT sqlc.arg(page_size);

-- name: MonthsOfUser :many
SELECT tenant_id, month, user_id, allowed, denied, least(trunc(cost_taken), 9e18)::bigint AS cost,
    (mod(cost_taken, 1) * 1000000)::bigint AS cost_parts
FROM user_month
WHERE tenant_id = sqlc.arg(tenant_id) AND month = ANY (sqlc.arg(months)::date[]) AND user_id = sqlc.arg(user_id)
ORDER BY month;

-- name: EraseUserMonths :one
-- Their checks stay in the sums of the tenant. The user makes room for another one in each month.
WITH erased AS (
    DELETE FROM user_month AS m WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.user_id = sqlc.arg(user_id) RETURNING m.month
), room AS (
    UPDATE month_users AS u SET users = greatest(0, u.users - 1)
    FROM erased AS e WHERE u.tenant_id = sqlc.arg(tenant_id) AND u.month = e.month AND sqlc.arg(user_id) <> ''
)
SELECT count(*) FROM erased;
