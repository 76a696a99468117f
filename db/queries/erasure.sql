-- Erasing one user of a tenant; see Store.ErasureWork.

-- name: ErasureOfUser :one
-- The one that goes on.
SELECT * FROM user_erasure WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id)::text;

-- name: RequestErasure :one
-- Returns the one that goes on, if there is one.
INSERT INTO user_erasure (tenant_id, receipt_id, user_id, actor)
VALUES (sqlc.arg(tenant_id), sqlc.arg(receipt_id), sqlc.arg(user_id)::text, sqlc.arg(actor))
ON CONFLICT (tenant_id, user_id) WHERE user_id IS NOT NULL DO UPDATE SET user_id = excluded.user_id
RETURNING *;

-- name: CountOpenErasures :one
SELECT count(*) FROM user_erasure WHERE tenant_id = sqlc.arg(tenant_id) AND user_id IS NOT NULL;

-- name: Erasure :one
SELECT * FROM user_erasure WHERE tenant_id = sqlc.arg(tenant_id) AND receipt_id = sqlc.arg(receipt_id);

-- name: OpenErasure :one
SELECT * FROM user_erasure
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id) AND finished_at IS NULL;

-- name: LockErasure :one
-- The open one, so that two processes do not work on it at once.
SELECT * FROM user_erasure
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id) AND finished_at IS NULL
FOR UPDATE;

-- name: NoteErasure :exec
UPDATE user_erasure SET steps = sqlc.arg(steps)
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id);

-- name: FinishErasure :exec
UPDATE user_erasure SET user_id = NULL, rules = sqlc.arg(rules)::bigint[], finished_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id);

-- name: EraseAssignment :execrows
DELETE FROM plan_assignment WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id);

-- name: EraseOverrides :execrows
DELETE FROM rate_limit_override WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id);

-- name: EraseViolations :execrows
-- The rows stay, so that counts stay right, and nobody is in them.
UPDATE rate_limit_violation AS v SET user_id = NULL, ip_address = NULL, bucket_key = rule_id || ':'
WHERE v.tenant_id = sqlc.arg(tenant_id) AND v.user_id = sqlc.arg(user_id)::text
    AND (v.requested_at, v.violation_id) IN (
        SELECT o.requested_at, o.violation_id FROM rate_limit_violation AS o
        WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.user_id = sqlc.arg(user_id)::text
        ORDER BY o.requested_at, o.violation_id
        LIMIT sqlc.arg(at_most)::integer);

-- name: EraseCrossings :execrows
DELETE FROM quota_crossing AS q
WHERE q.tenant_id = sqlc.arg(tenant_id) AND q.ctid = ANY (ARRAY(
    SELECT c.ctid FROM quota_crossing AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.user_id = sqlc.arg(user_id)::text
    LIMIT sqlc.arg(at_most)::integer));

-- name: AuditPiece :one
-- The last of the next entries after one; 0 for none.
SELECT coalesce(max(e.audit_id), 0)::bigint FROM (
    SELECT a.audit_id FROM audit_event AS a WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.audit_id > sqlc.arg(after)
    ORDER BY a.audit_id
    LIMIT sqlc.arg(at_most)::integer
) AS e;

-- name: EraseFromAudit :one
SELECT erase_user_from_audit(sqlc.arg(tenant_id)::bigint, sqlc.arg(user_id)::text, sqlc.arg(alias)::text,
    sqlc.arg(after)::bigint, sqlc.arg(up_to)::bigint) AS changed;

-- name: CountsPiece :one
-- The last minute of the next counts since one; the epoch for none.
SELECT coalesce(max(c.minute), 'epoch')::timestamptz FROM (
    SELECT m.minute FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
    ORDER BY m.minute
    LIMIT sqlc.arg(at_most)::integer
) AS c;

-- name: CountedSubjectsWith :many
-- The subjects that contain a text; whether they are a user's is up to their rule's pattern.
SELECT m.rule_id, m.subject, r.key_pattern, min(m.minute)::timestamptz AS first_at,
    max(m.minute)::timestamptz AS last_at,
    sum(m.denied)::bigint AS denied
FROM violation_minute AS m
JOIN rate_limit_rule AS r ON r.tenant_id = m.tenant_id AND r.rule_id = m.rule_id
WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
    AND m.minute < sqlc.arg(until)::timestamptz AND position(sqlc.arg(part)::text IN m.subject) > 0
GROUP BY m.rule_id, m.subject, r.key_pattern
ORDER BY m.rule_id, m.subject;

-- name: EraseSubjects :one
-- Moves counts of subjects to those of all other subjects.
WITH erased AS (
    DELETE FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
        AND m.minute < sqlc.arg(until)::timestamptz AND NOT m.other AND (m.rule_id, m.subject) IN (
            SELECT unnest(sqlc.arg(rule_ids)::bigint[]), unnest(sqlc.arg(subjects)::text[]) COLLATE "C")
    RETURNING m.minute, m.rule_id, m.denied, m.detail_dropped
), moved AS (
    INSERT INTO violation_minute AS m (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
    SELECT sqlc.arg(tenant_id), e.minute, e.rule_id, '', true, sum(e.denied), sum(e.detail_dropped)
    FROM erased AS e
    GROUP BY e.minute, e.rule_id
    ORDER BY e.minute, e.rule_id
    ON CONFLICT (tenant_id, minute, rule_id, subject, other) DO UPDATE
    SET denied = m.denied + excluded.denied, detail_dropped = m.detail_dropped + excluded.detail_dropped
)
SELECT count(*) FROM erased;

-- name: DeliveriesPiece :one
-- The last of the next deliveries after one; 0 for none.
SELECT coalesce(max(d.delivery_id), 0)::bigint FROM (
    SELECT o.delivery_id FROM delivery AS o
    WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.delivery_id > sqlc.arg(after)
    ORDER BY o.delivery_id
    LIMIT sqlc.arg(at_most)::integer
) AS d;

-- name: DeliveriesWith :many
-- The deliveries of alerts about a subject that contains a text.
SELECT d.delivery_id, d.subject, r.key_pattern
FROM delivery AS d
JOIN alert AS a ON a.tenant_id = d.tenant_id AND a.alert_id = d.alert_id
JOIN rate_limit_rule AS r ON r.tenant_id = a.tenant_id AND r.rule_id = coalesce(d.rule_id, a.rule_id)
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id > sqlc.arg(after)::bigint
    AND d.delivery_id <= sqlc.arg(up_to)::bigint AND position(sqlc.arg(part)::text IN d.subject) > 0;

-- name: EraseDeliveries :execrows
UPDATE delivery SET subject = ''
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = ANY (sqlc.arg(delivery_ids)::bigint[]);

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
