-- name: BusiestCallers :many
-- A row without a caller, with the checks of all, always comes first.
SELECT ''::text AS value, coalesce(sum(d.allowed + d.denied + d.bypassed) FILTER (WHERE d.minute = sqlc.arg(minute)),
        0)::bigint AS checks,
    coalesce(sum(d.allowed + d.denied + d.bypassed) FILTER (WHERE d.minute < sqlc.arg(minute)), 0)::bigint AS earlier
FROM decision_minute AS d
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.rule_id = 0 AND d.minute >= sqlc.arg(earlier)
    AND d.minute <= sqlc.arg(minute)
UNION ALL
(SELECT r.value, (sum(r.checks) FILTER (WHERE r.minute = sqlc.arg(minute)))::bigint AS checks,
    coalesce(sum(r.checks) FILTER (WHERE r.minute < sqlc.arg(minute)), 0)::bigint AS earlier
FROM recent_check AS r
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.dimension = sqlc.arg(dimension)::text
    AND r.minute >= sqlc.arg(earlier) AND r.minute <= sqlc.arg(minute)
GROUP BY r.value
HAVING bool_or(r.minute = sqlc.arg(minute))
ORDER BY checks DESC, r.value
LIMIT sqlc.arg(page_size));
