-- name: Alerts :many
SELECT * FROM alert WHERE tenant_id = $1 ORDER BY alert_id;

-- name: Alert :one
SELECT * FROM alert WHERE tenant_id = $1 AND alert_id = $2;

-- name: CreateAlert :one
INSERT INTO alert (tenant_id, name, rule_id, per_subject, threshold, window_minutes, url, secret, is_active)
VALUES (sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(rule_id), sqlc.arg(per_subject), sqlc.arg(threshold),
    sqlc.arg(window_minutes), sqlc.arg(url), sqlc.arg(secret), sqlc.arg(is_active))
RETURNING *;

-- name: UpdateAlert :one
UPDATE alert
SET name = sqlc.arg(name), rule_id = sqlc.arg(rule_id), per_subject = sqlc.arg(per_subject), threshold = sqlc.arg(threshold),
    window_minutes = sqlc.arg(window_minutes), url = sqlc.arg(url), is_active = sqlc.arg(is_active),
    version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id)
RETURNING *;

-- name: RotateAlertSecret :one
UPDATE alert
SET secret = sqlc.arg(secret), version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id)
RETURNING *;

-- name: RemoveAlert :one
DELETE FROM alert WHERE tenant_id = $1 AND alert_id = $2
RETURNING *;
