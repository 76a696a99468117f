-- name: AuditWebhook :one
-- next_run_at is the epoch for never, and now.
SELECT sqlc.embed(w), sqlc.embed(p), t.slug,
    coalesce((SELECT j.next_run_at FROM job AS j
        WHERE j.tenant_id = w.tenant_id AND j.kind = sqlc.arg(kind) AND j.about = ''), timestamptz 'epoch')::timestamptz
        AS next_run_at,
    EXISTS (SELECT FROM job AS r WHERE r.tenant_id = w.tenant_id AND r.kind = sqlc.arg(kind) AND r.about = ''
        AND r.lease_ends_at > now()) AS under_way, EXISTS (
    SELECT FROM job AS k WHERE k.tenant_id = w.tenant_id AND k.kind = sqlc.arg(test_kind) AND k.state = 'waiting'
) AS test_waits
FROM audit_webhook AS w
JOIN audit_webhook_progress AS p ON p.tenant_id = w.tenant_id
JOIN tenant AS t ON t.tenant_id = w.tenant_id
WHERE w.tenant_id = sqlc.arg(tenant_id);

-- name: CreateAuditWebhook :one
INSERT INTO audit_webhook (tenant_id, url, secret, is_active)
VALUES (sqlc.arg(tenant_id), sqlc.arg(url), sqlc.arg(secret), sqlc.arg(is_active))
RETURNING *;

-- name: BeginAuditWebhook :exec
-- The first entry to be sent is the next one that is written.
INSERT INTO audit_webhook_progress (tenant_id, sent_to)
VALUES (sqlc.arg(tenant_id), sqlc.arg(sent_to));

-- name: LastAuditID :one
SELECT coalesce(max(audit_id), 0)::bigint FROM audit_event WHERE tenant_id = $1;

-- name: UpdateAuditWebhook :one
UPDATE audit_webhook
SET url = sqlc.arg(url), is_active = sqlc.arg(is_active), version = version + 1, updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id)
RETURNING *;

-- name: ForgetAuditFailures :exec
UPDATE audit_webhook_progress SET failures = 0 WHERE tenant_id = $1;

-- name: SealAuditSecret :execrows
UPDATE audit_webhook SET secret = sqlc.arg(sealed) WHERE tenant_id = sqlc.arg(tenant_id) AND secret = sqlc.arg(stored);

-- name: RotateAuditSecret :one
UPDATE audit_webhook SET secret = sqlc.arg(secret), version = version + 1, updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id)
RETURNING *;

-- name: RemoveAuditWebhook :execrows
DELETE FROM audit_webhook WHERE tenant_id = $1;

-- name: AuditAfter :many
-- Returns so many objects that the last entry has the at_most-th.
SELECT e.* FROM (
    SELECT a.audit_id, sum(a.row_count) OVER (ORDER BY a.audit_id) - a.row_count AS earlier
    FROM (
        SELECT n.audit_id, n.row_count FROM audit_event AS n
        WHERE n.tenant_id = sqlc.arg(tenant_id) AND n.audit_id > sqlc.arg(after)
        ORDER BY n.audit_id
        LIMIT sqlc.arg(page_size)
    ) AS a
) AS p
JOIN audit_event AS e ON e.audit_id = p.audit_id
WHERE e.tenant_id = sqlc.arg(tenant_id) AND p.earlier < sqlc.arg(at_most)::integer
ORDER BY e.audit_id;

-- name: AuditWaiting :one
SELECT count(*) AS entries, coalesce(min(e.at), now())::timestamptz AS oldest FROM (
    SELECT a.at FROM audit_event AS a
    WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.audit_id > sqlc.arg(after)
    ORDER BY a.audit_id
    LIMIT sqlc.arg(at_most)
) AS e;

-- name: FinishAuditBatch :exec
-- Has no effect if the job is no longer of the claim.
UPDATE audit_webhook_progress AS p
SET sent_to = greatest(p.sent_to, sqlc.arg(sent_to)::bigint), attempted_at = clock_timestamp(),
    failures = CASE WHEN sqlc.arg(succeeded)::boolean THEN 0 ELSE p.failures + 1 END,
    succeeded_at = CASE WHEN sqlc.arg(succeeded)::boolean THEN clock_timestamp() ELSE p.succeeded_at END,
    http_status = nullif(sqlc.arg(http_status)::integer, 0), error = sqlc.arg(error)
WHERE p.tenant_id = sqlc.arg(tenant_id) AND EXISTS (
    SELECT FROM job AS j
    WHERE j.tenant_id = p.tenant_id AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
);

-- name: FinishAuditTest :execrows
-- No row if the job is no longer of the claim.
UPDATE audit_webhook_progress AS p
SET tested_at = clock_timestamp(), test_status = nullif(sqlc.arg(http_status)::integer, 0),
    test_error = sqlc.arg(error)
WHERE p.tenant_id = sqlc.arg(tenant_id) AND EXISTS (
    SELECT FROM job AS j
    WHERE j.tenant_id = p.tenant_id AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
);

-- name: TryLockTenant :one
-- No row if somebody else writes.
SELECT tenant_id FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE SKIP LOCKED;

-- name: RestAuditWebhook :execrows
-- Ends a job unless there are entries to send. All writers lock the tenant, as the caller does, so the next entry makes
-- a new job.
DELETE FROM job AS j
WHERE j.tenant_id = sqlc.arg(tenant_id) AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
    AND NOT EXISTS (
        SELECT FROM audit_webhook_progress AS p
        JOIN audit_webhook AS w ON w.tenant_id = p.tenant_id AND w.is_active
        JOIN audit_event AS e ON e.tenant_id = p.tenant_id AND e.audit_id > p.sent_to
        WHERE p.tenant_id = j.tenant_id
    );
