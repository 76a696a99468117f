-- name: BusiestCallers :many
-- A row without a caller, with the checks of all, always comes first.
WITH counted AS (
    SELECT c.slot, c.value, c.checks
    FROM recent_check AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.dimension IN ('', sqlc.arg(dimension)::text)
        AND c.slot >= sqlc.arg(earlier) AND c.slot < sqlc.arg(until)
)
SELECT r.value::text AS value,
    coalesce(sum(r.checks) FILTER (WHERE r.slot >= sqlc.arg(since)::timestamptz), 0)::bigint AS checks,
    coalesce(sum(r.checks) FILTER (WHERE r.slot < sqlc.arg(since)::timestamptz), 0)::bigint AS earlier
FROM (
    SELECT * FROM counted
    UNION ALL
    SELECT sqlc.arg(since)::timestamptz, '', 0
) AS r
GROUP BY r.value
HAVING bool_or(r.slot >= sqlc.arg(since)::timestamptz)
ORDER BY r.value = '' DESC, checks DESC, r.value
LIMIT sqlc.arg(page_size);
