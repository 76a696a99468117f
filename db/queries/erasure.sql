-- Erasing one user of a tenant; see Writer.EraseUser.

-- name: EraseAssignment :execrows
DELETE FROM plan_assignment WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id);

-- name: EraseOverrides :execrows
DELETE FROM rate_limit_override WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id);

-- name: EraseViolations :execrows
-- The rows stay, so that counts stay right, and nobody is in them.
UPDATE rate_limit_violation SET user_id = NULL, ip_address = NULL, bucket_key = rule_id || ':'
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id)::text;

-- name: EraseCrossings :execrows
DELETE FROM quota_crossing WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id)::text;

-- name: EraseFromAudit :one
SELECT erase_user_from_audit(sqlc.arg(tenant_id)::bigint, sqlc.arg(user_id)::text, sqlc.arg(alias)::text) AS changed;

-- name: CountedSubjectsWith :many
-- The subjects that contain a text; whether they are a user's is up to their rule's pattern.
SELECT m.rule_id, m.subject, r.key_pattern, min(m.minute)::timestamptz AS first_at,
    max(m.minute)::timestamptz AS last_at,
    sum(m.denied)::bigint AS denied
FROM violation_minute AS m
JOIN rate_limit_rule AS r ON r.tenant_id = m.tenant_id AND r.rule_id = m.rule_id
WHERE m.tenant_id = sqlc.arg(tenant_id) AND position(sqlc.arg(part)::text IN m.subject) > 0
GROUP BY m.rule_id, m.subject, r.key_pattern
ORDER BY m.rule_id, m.subject;

-- name: CountSubjectAsOther :exec
INSERT INTO violation_minute AS m (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
SELECT c.tenant_id, c.minute, c.rule_id, '', true, c.denied, c.detail_dropped
FROM violation_minute AS c
WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.rule_id = sqlc.arg(rule_id) AND c.subject = sqlc.arg(subject)::text
    AND NOT c.other
ORDER BY c.minute
ON CONFLICT (tenant_id, minute, rule_id, subject, other) DO UPDATE
SET denied = m.denied + excluded.denied, detail_dropped = m.detail_dropped + excluded.detail_dropped;

-- name: EraseSubject :execrows
DELETE FROM violation_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id) AND subject = sqlc.arg(subject)::text
    AND NOT other;

-- name: DeliveriesWith :many
-- The deliveries of alerts about a subject that contains a text.
SELECT d.delivery_id, d.subject, r.key_pattern
FROM delivery AS d
JOIN alert AS a ON a.tenant_id = d.tenant_id AND a.alert_id = d.alert_id
JOIN rate_limit_rule AS r ON r.tenant_id = a.tenant_id AND r.rule_id = coalesce(d.rule_id, a.rule_id)
WHERE d.tenant_id = sqlc.arg(tenant_id) AND position(sqlc.arg(part)::text IN d.subject) > 0;

-- name: EraseDelivery :execrows
UPDATE delivery SET subject = '' WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = sqlc.arg(delivery_id);

-- name: PatternsWith :many
SELECT rule_id, key_pattern FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND removed_at IS NULL AND position(sqlc.arg(part)::text IN key_pattern) > 0;

-- name: AuditOfUser :many
-- The latest first.
SELECT * FROM audit_event
WHERE tenant_id = sqlc.arg(tenant_id) AND (object_kind = 'user' AND object_id = sqlc.arg(user_id)
    OR object_kind IN ('override', 'bucket')
        AND (before->>'user_id' = sqlc.arg(user_id)::text OR after->>'user_id' = sqlc.arg(user_id)::text))
ORDER BY at DESC, audit_id DESC
LIMIT sqlc.arg(page_size);
