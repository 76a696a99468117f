-- name: AuditWebhook :one
SELECT sqlc.embed(w), sqlc.embed(p)
FROM audit_webhook AS w
JOIN audit_webhook_progress AS p ON p.tenant_id = w.tenant_id
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

-- name: RetryAuditWebhook :exec
-- What waits is due now.
UPDATE audit_webhook_progress SET next_attempt_at = now(), failures = 0 WHERE tenant_id = $1;

-- name: SealAuditSecret :execrows
-- Its version stays, because nothing that people see changes.
UPDATE audit_webhook SET secret = sqlc.arg(sealed) WHERE tenant_id = sqlc.arg(tenant_id) AND secret = sqlc.arg(stored);

-- name: RotateAuditSecret :one
UPDATE audit_webhook SET secret = sqlc.arg(secret), version = version + 1, updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id)
RETURNING *;

-- name: RemoveAuditWebhook :execrows
DELETE FROM audit_webhook WHERE tenant_id = $1;

-- name: TestAuditWebhook :execrows
-- No row while the previous test waits.
UPDATE audit_webhook_progress SET test_requested_at = now(), next_attempt_at = now()
WHERE tenant_id = $1 AND test_requested_at IS NULL;

-- name: AuditAfter :many
-- The oldest first. A tenant's entries become visible in the order of their ids, because its writers lock the tenant.
SELECT * FROM audit_event
WHERE tenant_id = sqlc.arg(tenant_id) AND audit_id > sqlc.arg(after)
ORDER BY audit_id
LIMIT sqlc.arg(page_size);

-- name: AuditWaiting :one
-- How many entries wait to be sent, up to a number, and since when the oldest does.
SELECT count(*) AS entries, coalesce(min(e.at), now())::timestamptz AS oldest FROM (
    SELECT a.at FROM audit_event AS a
    WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.audit_id > sqlc.arg(after)
    ORDER BY a.audit_id
    LIMIT sqlc.arg(at_most)
) AS e;

-- name: FinishAuditBatch :exec
-- Does nothing if the lease has ended and another process has begun an attempt.
UPDATE audit_webhook_progress
SET sent_to = greatest(sent_to, sqlc.arg(sent_to)::bigint), failures = sqlc.arg(failures), next_attempt_at = sqlc.arg(next_attempt_at),
    lease_ends_at = NULL, attempted_at = sqlc.narg(attempted_at),
    succeeded_at = coalesce(sqlc.narg(succeeded_at), succeeded_at), http_status = nullif(sqlc.arg(http_status)::integer, 0),
    error = sqlc.arg(error)
WHERE tenant_id = sqlc.arg(tenant_id) AND lease_ends_at = sqlc.arg(lease_ends_at)::timestamptz;

-- name: FinishAuditTest :exec
UPDATE audit_webhook_progress
SET test_requested_at = NULL, tested_at = sqlc.arg(tested_at)::timestamptz, test_status = nullif(sqlc.arg(http_status)::integer, 0),
    test_error = sqlc.arg(error), next_attempt_at = sqlc.arg(next_attempt_at), lease_ends_at = NULL
WHERE tenant_id = sqlc.arg(tenant_id) AND lease_ends_at = sqlc.arg(lease_ends_at)::timestamptz;
