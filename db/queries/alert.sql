-- name: Alerts :many
SELECT sqlc.embed(a), EXISTS (
    SELECT FROM rate_limit_rule AS r WHERE r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id
        AND r.removed_at IS NOT NULL
) AS rule_removed, coalesce((
    SELECT d.raised_at FROM delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND NOT d.is_test
    ORDER BY d.raised_at DESC LIMIT 1
), timestamptz 'epoch')::timestamptz AS raised_at -- the epoch: never
FROM alert AS a
WHERE a.tenant_id = sqlc.arg(tenant_id)
ORDER BY a.alert_id;

-- name: Alert :one
SELECT sqlc.embed(a), EXISTS (
    SELECT FROM rate_limit_rule AS r WHERE r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id
        AND r.removed_at IS NOT NULL
) AS rule_removed, coalesce((
    SELECT d.raised_at FROM delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND NOT d.is_test
    ORDER BY d.raised_at DESC LIMIT 1
), timestamptz 'epoch')::timestamptz AS raised_at -- the epoch: never
FROM alert AS a
WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.alert_id = sqlc.arg(alert_id);

-- name: CreateAlert :one
INSERT INTO alert (tenant_id, name, kind, rule_id, per_subject, threshold, window_minutes, format, url, email, secret,
    is_active)
VALUES (sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(kind), sqlc.narg(rule_id), sqlc.arg(per_subject),
    sqlc.arg(threshold),
    sqlc.arg(window_minutes), sqlc.arg(format), sqlc.arg(url), sqlc.arg(email), sqlc.arg(secret), sqlc.arg(is_active))
RETURNING alert_id;

-- name: UpdateAlert :execrows
UPDATE alert
SET name = sqlc.arg(name), kind = sqlc.arg(kind), rule_id = sqlc.narg(rule_id), per_subject = sqlc.arg(per_subject),
    threshold = sqlc.arg(threshold),
    window_minutes = sqlc.arg(window_minutes), format = sqlc.arg(format), url = sqlc.arg(url), email = sqlc.arg(email),
    secret = sqlc.arg(secret), is_active = sqlc.arg(is_active),
    version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: RotateAlertSecret :execrows
UPDATE alert
SET secret = sqlc.arg(secret), version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: SealAlertSecret :execrows
-- The version stays, because nothing that people see changes.
UPDATE alert SET secret = sqlc.arg(sealed)
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND secret = sqlc.arg(stored);

-- name: SilenceAlert :execrows
-- Until null ends a silence.
UPDATE alert
SET silenced_until = sqlc.narg(until)::timestamptz, silenced_by = sqlc.arg(silenced_by),
    silence_reason = sqlc.arg(reason),
    version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: RemoveAlert :execrows
DELETE FROM alert WHERE tenant_id = $1 AND alert_id = $2;

-- name: TurnOffAlertsOfRules :many
UPDATE alert SET is_active = false, version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = ANY (sqlc.arg(rule_ids)::bigint[]) AND is_active
RETURNING alert_id;

-- name: TurnOnAlert :execrows
-- If the alert is as the write that turned it off left it.
UPDATE alert SET is_active = true, version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND version = sqlc.arg(version);

-- name: CountedSince :one
-- Returns the epoch for none; rule 0 is checks as a whole.
SELECT coalesce((
    SELECT d.minute FROM decision_minute AS d
    WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.rule_id = sqlc.arg(rule_id)
        AND d.minute > sqlc.arg(since)::timestamptz
    ORDER BY d.minute LIMIT 1
), timestamptz 'epoch')::timestamptz AS minute;
