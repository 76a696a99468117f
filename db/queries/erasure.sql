
-- name: ErasureOfUser :one
SELECT * FROM user_erasure WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id)::text;

-- name: RequestErasure :one
-- Returns a running one, if there is one.
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
-- Two processes must not work on it at once.
SELECT * FROM user_erasure
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id) AND finished_at IS NULL
FOR UPDATE;

-- name: NoteErasureError :exec
UPDATE user_erasure SET error = sqlc.arg(error)
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id) AND finished_at IS NULL;

-- name: NoteErasure :exec
UPDATE user_erasure SET steps = sqlc.arg(steps), error = ''
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id);

-- name: FinishErasure :exec
UPDATE user_erasure SET user_id = NULL, rules = sqlc.arg(rules)::bigint[], error = '', finished_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND erasure_id = sqlc.arg(erasure_id);

-- name: EraseAssignment :execrows
DELETE FROM plan_assignment WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id);

-- name: EraseOverrides :execrows
DELETE FROM rate_limit_override WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id);

-- name: EraseViolations :execrows
-- The rows stay, so that counts stay right.
UPDATE rate_limit_violation AS v SET user_id = NULL, ip_address = NULL, bucket_key = rule_id || ':'
WHERE v.tenant_id = sqlc.arg(tenant_id) AND v.user_id = sqlc.arg(user_id)::text
    AND (v.requested_at, v.violation_id) IN (
        SELECT o.requested_at, o.violation_id FROM rate_limit_violation AS o
        WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.user_id = sqlc.arg(user_id)::text
        ORDER BY o.requested_at, o.violation_id
        LIMIT sqlc.arg(at_most)::integer);

-- name: HoldCheckpoints :exec
-- See ShareCheckpoints.
SELECT pg_advisory_xact_lock(hashtext('sluice checkpoints'));

-- name: EraseCheckpoints :exec
-- The mark makes WriteCheckpoints and CountUserMonths refuse earlier states and settlements that other processes still
-- have.
WITH erased AS (
    DELETE FROM bucket_checkpoint AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.owner = sha256(sqlc.arg(user_id)::bytea)
)
INSERT INTO bucket_checkpoint (tenant_id, rule_id, subject, stamp, state)
VALUES (sqlc.arg(tenant_id), 0, sha256(sqlc.arg(user_id)::bytea),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, '')
ON CONFLICT (tenant_id, rule_id, subject) DO UPDATE SET stamp = excluded.stamp;

-- name: CheckpointsOfUser :many
SELECT * FROM bucket_checkpoint
WHERE tenant_id = sqlc.arg(tenant_id) AND owner = sha256(sqlc.arg(user_id)::bytea)
    AND (rule_id, subject) > (sqlc.arg(rule_id)::bigint, sqlc.arg(subject)::bytea)
ORDER BY rule_id, subject
LIMIT sqlc.arg(page_size);

-- name: EraseCrossings :execrows
DELETE FROM quota_crossing AS q
WHERE q.tenant_id = sqlc.arg(tenant_id) AND q.ctid = ANY (ARRAY(
    SELECT c.ctid FROM quota_crossing AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.user_id = sqlc.arg(user_id)::text
    LIMIT sqlc.arg(at_most)::integer));

-- name: AuditPiece :one
-- Returns the entry with the at_most-th object after one; 0 for none.
SELECT coalesce(max(e.audit_id), 0)::bigint FROM (
    SELECT a.audit_id, sum(a.row_count) OVER (ORDER BY a.audit_id) - a.row_count AS earlier
    FROM (
        SELECT n.audit_id, n.row_count FROM audit_event AS n
        WHERE n.tenant_id = sqlc.arg(tenant_id) AND n.audit_id > sqlc.arg(after)
        ORDER BY n.audit_id
        LIMIT sqlc.arg(at_most)::integer
    ) AS a
) AS e
WHERE e.earlier < sqlc.arg(at_most)::integer;

-- name: EraseFromAudit :one
SELECT erase_user_from_audit(sqlc.arg(tenant_id)::bigint, sqlc.arg(user_id)::text, sqlc.arg(alias)::text,
    sqlc.arg(after)::bigint, sqlc.arg(up_to)::bigint) AS changed;

-- name: CountsPiece :one
-- Returns the epoch for none.
SELECT coalesce(max(c.minute), 'epoch')::timestamptz FROM (
    SELECT m.minute FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
    ORDER BY m.minute
    LIMIT sqlc.arg(at_most)::integer
) AS c;

-- name: CountedSubjectsWith :many
-- Finds subjects that the id may be in, as AppendSubject writes it and StoredSubject cuts it. The rule's pattern
-- decides whose they are.
SELECT m.rule_id, m.subject, r.key_pattern, min(m.minute)::timestamptz AS first_at,
    max(m.minute)::timestamptz AS last_at,
    sum(m.denied)::bigint AS denied
FROM violation_minute AS m
JOIN rate_limit_rule AS r ON r.tenant_id = m.tenant_id AND r.rule_id = m.rule_id
WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
    AND m.minute < sqlc.arg(until)::timestamptz AND (m.subject = sqlc.arg(user_id)::text
        OR position(octet_length(sqlc.arg(user_id)::text) || ':' || sqlc.arg(user_id)::text IN m.subject) > 0
        OR octet_length(m.subject) > 1024
            AND position(',' || octet_length(sqlc.arg(user_id)::text) || ':'
                IN substring(m.subject FROM length(m.subject) - 329)) > 0)
GROUP BY m.rule_id, m.subject, r.key_pattern
ORDER BY m.rule_id, m.subject;

-- name: LockDenials :exec
-- Locks also the rows that EraseDenials adds to.
INSERT INTO denial_count AS r (tenant_id, dimension, slot, rule_id, mode, value, other, denied)
SELECT c.tenant_id, c.dimension, c.slot, c.rule_id, c.mode, o.value, o.other, 0
FROM denial_count AS c
CROSS JOIN LATERAL (VALUES (c.value, false), (''::text COLLATE "C", true)) AS o (value, other)
WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.dimension = 'user' AND c.value = sqlc.arg(user_id)::text
ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (tenant_id, dimension, slot, rule_id, mode, value, other) DO UPDATE SET denied = r.denied;

-- name: EraseDenials :execrows
WITH gone AS (
    DELETE FROM denial_count AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.dimension = 'user' AND c.value = sqlc.arg(user_id)::text
    RETURNING c.*
)
INSERT INTO denial_count AS r (tenant_id, dimension, slot, rule_id, mode, value, other, denied)
SELECT sqlc.arg(tenant_id), g.dimension, g.slot, g.rule_id, g.mode, '', true, g.denied
FROM gone AS g
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant_id, dimension, slot, rule_id, mode, value, other) DO UPDATE SET denied = r.denied + excluded.denied;

-- name: EraseCallers :execrows
DELETE FROM recent_check
WHERE tenant_id = sqlc.arg(tenant_id) AND dimension = 'user' AND value = sqlc.arg(user_id)::text;

-- name: LockSubjects :exec
-- Locks the counts of subjects and the rows of all other subjects, which it makes where they are missing.
-- ViolationsCounted locks in the same order, against deadlocks.
INSERT INTO violation_minute AS m (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
SELECT c.tenant_id, c.minute, c.rule_id, o.subject, o.other, 0, 0
FROM violation_minute AS c
CROSS JOIN LATERAL (VALUES (c.subject, false), (''::text COLLATE "C", true)) AS o (subject, other)
WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.minute >= sqlc.arg(since)::timestamptz
    AND c.minute < sqlc.arg(until)::timestamptz AND NOT c.other AND (c.rule_id, c.subject) IN (
        SELECT unnest(sqlc.arg(rule_ids)::bigint[]), unnest(sqlc.arg(subjects)::text[]) COLLATE "C")
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant_id, minute, rule_id, subject, other) DO UPDATE SET denied = m.denied;

-- name: EraseSubjects :one
WITH erased AS (
    DELETE FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
        AND m.minute < sqlc.arg(until)::timestamptz AND NOT m.other AND (m.rule_id, m.subject) IN (
            SELECT unnest(sqlc.arg(rule_ids)::bigint[]), unnest(sqlc.arg(subjects)::text[]) COLLATE "C")
    RETURNING m.minute, m.rule_id, m.denied, m.detail_dropped
), moved AS (
    UPDATE violation_minute AS m
    SET denied = m.denied + e.denied, detail_dropped = m.detail_dropped + e.detail_dropped
    FROM (
        SELECT d.minute, d.rule_id, sum(d.denied) AS denied, sum(d.detail_dropped) AS detail_dropped
        FROM erased AS d
        GROUP BY d.minute, d.rule_id
    ) AS e
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute = e.minute AND m.rule_id = e.rule_id AND m.subject = ''
        AND m.other
)
SELECT count(*) FROM erased;

-- name: DeliveriesPiece :one
-- Returns 0 for none.
SELECT coalesce(max(d.delivery_id), 0)::bigint FROM (
    SELECT o.delivery_id FROM delivery AS o
    WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.delivery_id > sqlc.arg(after)
    ORDER BY o.delivery_id
    LIMIT sqlc.arg(at_most)::integer
) AS d;

-- name: DeliveriesWith :many
-- Includes subjects that were cut, and may have contained the text.
SELECT d.delivery_id, d.subject, r.key_pattern
FROM delivery AS d
JOIN alert AS a ON a.tenant_id = d.tenant_id AND a.alert_id = d.alert_id
JOIN rate_limit_rule AS r ON r.tenant_id = a.tenant_id AND r.rule_id = coalesce(d.rule_id, a.rule_id)
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id > sqlc.arg(after)::bigint
    AND d.delivery_id <= sqlc.arg(up_to)::bigint
    AND (position(sqlc.arg(part)::text IN d.subject) > 0 OR octet_length(d.subject) > 1024);

-- name: EraseDeliveries :execrows
UPDATE delivery SET subject = ''
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = ANY (sqlc.arg(delivery_ids)::bigint[]);

-- name: PatternsWith :many
SELECT rule_id, key_pattern FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND removed_at IS NULL AND position(sqlc.arg(part)::text IN key_pattern) > 0;

-- name: AuditOfUser :many
SELECT e.tenant_id, e.audit_id, e.at, e.actor_kind, e.actor_id, e.actor_name, e.act, e.request_id, e.action,
    e.object_kind, coalesce(r.image->>'id', e.object_id)::text AS object_id, e.change_id,
    coalesce(nullif(r.image->'before', 'null'), e.before)::jsonb AS before,
    coalesce(nullif(r.image->'after', 'null'), e.after)::jsonb AS after, e.row_count,
    (CASE WHEN e.rows IS NULL THEN 0 ELSE r.number END)::integer AS row_number
FROM audit_event AS e
CROSS JOIN LATERAL jsonb_array_elements(coalesce(e.rows, '[null]')) WITH ORDINALITY AS r (image, number)
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.audit_id > sqlc.arg(after)::bigint
    AND e.audit_id <= sqlc.arg(up_to)::bigint
    AND (e.object_kind = 'user' AND coalesce(r.image->>'id', e.object_id) = sqlc.arg(user_id)::text
        OR e.object_kind IN ('override', 'bucket') AND sqlc.arg(user_id)::text IN (
            e.before->>'user_id', e.after->>'user_id', r.image->'before'->>'user_id', r.image->'after'->>'user_id'))
ORDER BY e.audit_id, r.number;
