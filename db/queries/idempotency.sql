-- name: DropCallersIdempotent :exec
-- Each request deletes more rows than it adds.
DELETE FROM idempotency AS d
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.key_digest IN (
    SELECT i.key_digest FROM idempotency AS i
    WHERE i.tenant_id = sqlc.arg(tenant_id) AND i.caller = sqlc.arg(caller) AND i.number <= sqlc.arg(up_to)::bigint
    ORDER BY i.number
    LIMIT 10
    FOR UPDATE SKIP LOCKED
);

-- name: BeginIdempotent :one
-- No row if the key was used within a day, unless for the same request that has neither committed nor time left.
INSERT INTO idempotency AS i (tenant_id, key_digest, caller, fingerprint, attempt, lease_ends_at, number)
VALUES (sqlc.arg(tenant_id), sqlc.arg(key_digest), sqlc.arg(caller), sqlc.arg(fingerprint), 1,
    clock_timestamp() + make_interval(secs => sqlc.arg(lease_seconds)::float8),
    (SELECT coalesce(max(l.number), 0) + 1 FROM idempotency AS l
    WHERE l.tenant_id = sqlc.arg(tenant_id) AND l.caller = sqlc.arg(caller)))
ON CONFLICT (tenant_id, key_digest) DO UPDATE
SET attempt = i.attempt + 1, caller = excluded.caller, fingerprint = excluded.fingerprint, number = excluded.number,
    started_at = clock_timestamp(),
    lease_ends_at = excluded.lease_ends_at, committed = false, answer = NULL
WHERE CASE WHEN i.started_at < clock_timestamp() - interval '1 day' THEN true
    ELSE NOT i.committed AND i.lease_ends_at < clock_timestamp() AND i.fingerprint = excluded.fingerprint END
RETURNING attempt, number;

-- name: Idempotent :one
SELECT fingerprint, committed, answer, greatest(0, extract(epoch FROM lease_ends_at - clock_timestamp()))::float8
    AS lease_seconds
FROM idempotency
WHERE tenant_id = sqlc.arg(tenant_id) AND key_digest = sqlc.arg(key_digest);

-- name: CommitIdempotent :execrows
UPDATE idempotency SET committed = true
WHERE tenant_id = sqlc.arg(tenant_id) AND key_digest = sqlc.arg(key_digest) AND attempt = sqlc.arg(attempt);

-- name: KeepAnswer :exec
UPDATE idempotency SET committed = true, answer = sqlc.arg(answer)
WHERE tenant_id = sqlc.arg(tenant_id) AND key_digest = sqlc.arg(key_digest) AND attempt = sqlc.arg(attempt);

-- name: ForgetIdempotent :exec
DELETE FROM idempotency
WHERE tenant_id = sqlc.arg(tenant_id) AND key_digest = sqlc.arg(key_digest) AND attempt = sqlc.arg(attempt)
    AND NOT committed;
