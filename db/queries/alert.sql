-- name: Alerts :many
SELECT sqlc.embed(a), (r.removed_at IS NOT NULL)::boolean AS rule_removed
FROM alert AS a
JOIN rate_limit_rule AS r ON r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id
WHERE a.tenant_id = sqlc.arg(tenant_id)
ORDER BY a.alert_id;

-- name: Alert :one
SELECT sqlc.embed(a), (r.removed_at IS NOT NULL)::boolean AS rule_removed
FROM alert AS a
JOIN rate_limit_rule AS r ON r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id
WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.alert_id = sqlc.arg(alert_id);

-- name: CreateAlert :one
INSERT INTO alert (tenant_id, name, rule_id, per_subject, threshold, window_minutes, format, url, email, secret, is_active)
VALUES (sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(rule_id), sqlc.arg(per_subject), sqlc.arg(threshold),
    sqlc.arg(window_minutes), sqlc.arg(format), sqlc.arg(url), sqlc.arg(email), sqlc.arg(secret), sqlc.arg(is_active))
RETURNING alert_id;

-- name: UpdateAlert :execrows
UPDATE alert
SET name = sqlc.arg(name), rule_id = sqlc.arg(rule_id), per_subject = sqlc.arg(per_subject), threshold = sqlc.arg(threshold),
    window_minutes = sqlc.arg(window_minutes), format = sqlc.arg(format), url = sqlc.arg(url), email = sqlc.arg(email),
    secret = sqlc.arg(secret), is_active = sqlc.arg(is_active),
    version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: RotateAlertSecret :execrows
UPDATE alert
SET secret = sqlc.arg(secret), version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: RemoveAlert :execrows
DELETE FROM alert WHERE tenant_id = $1 AND alert_id = $2;

-- name: TurnOffAlertsOfRules :exec
UPDATE alert SET is_active = false, version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = ANY (sqlc.arg(rule_ids)::bigint[]) AND is_active;
