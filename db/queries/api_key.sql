-- name: NewerKeys :batchmany
-- Reads revoked keys too, because processes answer a revoked key otherwise than an unknown one. A full read leaves out
-- keys that were revoked more than 30 days ago: a client that makes and revokes keys in a loop must not fill the memory
-- of processes.
SELECT * FROM api_key
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, key_id) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_key_id)::text)
    AND (revoked_at IS NULL OR sqlc.arg(with_revoked)::boolean OR revoked_at > now() - interval '30 days')
ORDER BY revision, key_id
LIMIT sqlc.arg(page_size);

-- name: Keys :many
-- A creator has left if the account may no longer sign in, or is neither a member nor a platform admin.
SELECT sqlc.embed(k), (SELECT u.last_used_at FROM api_key_use AS u WHERE u.tenant_id = k.tenant_id
    AND u.key_id = k.key_id),
    (k.created_by_kind = 'account' AND NOT EXISTS (
        SELECT FROM account AS a
        WHERE a.account_id::text = k.created_by_id AND a.disabled_at IS NULL AND (a.is_platform_admin OR EXISTS (
            SELECT FROM member AS m WHERE m.tenant_id = k.tenant_id AND m.account_id = a.account_id))))::boolean
                AS creator_left
FROM api_key AS k
WHERE k.tenant_id = sqlc.arg(tenant_id)
    AND (sqlc.narg(before_created_at)::timestamptz IS NULL
        OR (k.created_at, k.key_id) < (sqlc.narg(before_created_at)::timestamptz, sqlc.arg(before_key_id)::text))
ORDER BY k.created_at DESC, k.key_id DESC
LIMIT sqlc.arg(page_size);

-- name: Key :one
SELECT sqlc.embed(k), (SELECT u.last_used_at FROM api_key_use AS u WHERE u.tenant_id = k.tenant_id
    AND u.key_id = k.key_id),
    (k.created_by_kind = 'account' AND NOT EXISTS (
        SELECT FROM account AS a
        WHERE a.account_id::text = k.created_by_id AND a.disabled_at IS NULL AND (a.is_platform_admin OR EXISTS (
            SELECT FROM member AS m WHERE m.tenant_id = k.tenant_id AND m.account_id = a.account_id))))::boolean
                AS creator_left
FROM api_key AS k
WHERE k.tenant_id = sqlc.arg(tenant_id) AND k.key_id = sqlc.arg(key_id);

-- name: CreateKey :one
INSERT INTO api_key (
    tenant_id, key_id, name, digest, permissions, expires_at, revision, networks, created_by_kind, created_by_id,
        created_by_name)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
RETURNING *;

-- name: RevokeKey :execrows
UPDATE api_key
SET revoked_at = clock_timestamp(), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND key_id = sqlc.arg(key_id) AND revoked_at IS NULL;

-- name: ExpireKey :one
UPDATE api_key
SET expires_at = sqlc.narg(expires_at), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND key_id = sqlc.arg(key_id) AND revoked_at IS NULL
RETURNING *;

-- name: KeepKey :one
-- Null: nobody decided that it stays.
UPDATE api_key
SET kept_at = sqlc.narg(kept_at), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND key_id = sqlc.arg(key_id) AND revoked_at IS NULL
RETURNING *;
