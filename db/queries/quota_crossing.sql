-- name: CrossingsBefore :many
-- '' is all users, and 0 all rules.
SELECT * FROM quota_crossing
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (sqlc.arg(user_id)::text = '' OR user_id = sqlc.arg(user_id)::text)
    AND (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
    AND (crossed_at, crossing_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
ORDER BY crossed_at DESC, crossing_id DESC
LIMIT sqlc.arg(page_size);
