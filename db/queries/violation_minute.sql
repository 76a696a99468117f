-- name: DeniedInMinute :one
SELECT denied FROM violation_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND minute = sqlc.arg(minute) AND rule_id = sqlc.arg(rule_id)
    AND subject = sqlc.arg(subject) AND NOT other;
