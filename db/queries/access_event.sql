-- name: AccessEventsOf :many
SELECT * FROM access_event AS e
WHERE e.tenant_id = sqlc.arg(tenant_id)
    AND (e.at, e.access_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
        AND e.at >= sqlc.arg(since)::timestamptz
    AND (sqlc.arg(account_id)::bigint = 0 OR e.account_id = sqlc.arg(account_id)::bigint)
    AND (sqlc.arg(kind)::text = '' OR e.kind = sqlc.arg(kind)::text)
    AND (sqlc.arg(ip)::text = '' OR e.ip = nullif(sqlc.arg(ip)::text, '')::inet)
ORDER BY e.at DESC, e.access_id DESC
LIMIT sqlc.arg(page_size);
