-- name: SubjectsByDenials :many
-- Whom a rule denied most; other is all those whom a recorder had no room for.
SELECT subject, other, sum(denied)::bigint AS denied
FROM violation_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id)
    AND minute >= sqlc.arg(since) AND minute < sqlc.arg(until)
GROUP BY subject, other
HAVING sum(denied) >= sqlc.arg(at_least)::bigint
ORDER BY 3 DESC, 1
LIMIT sqlc.arg(page_size);

-- name: DeniedInMinute :one
SELECT denied FROM violation_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND minute = sqlc.arg(minute) AND rule_id = sqlc.arg(rule_id)
    AND subject = sqlc.arg(subject) AND NOT other;
