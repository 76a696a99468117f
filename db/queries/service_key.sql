-- name: ServiceKeys :many
-- A creator has left if the account may no longer sign in, or is no platform admin.
SELECT sqlc.embed(k), (k.created_by_kind = 'account' AND NOT EXISTS (
        SELECT FROM account AS a
        WHERE a.account_id::text = k.created_by_id AND a.disabled_at IS NULL AND a.is_platform_admin))::boolean
            AS creator_left
FROM service_key AS k
WHERE sqlc.narg(before_created_at)::timestamptz IS NULL
    OR (k.created_at, k.key_id) < (sqlc.narg(before_created_at)::timestamptz, sqlc.arg(before_key_id)::text)
ORDER BY k.created_at DESC, k.key_id DESC
LIMIT sqlc.arg(page_size);

-- name: ServiceKey :one
SELECT sqlc.embed(k), (k.created_by_kind = 'account' AND NOT EXISTS (
        SELECT FROM account AS a
        WHERE a.account_id::text = k.created_by_id AND a.disabled_at IS NULL AND a.is_platform_admin))::boolean
            AS creator_left
FROM service_key AS k
WHERE k.key_id = sqlc.arg(key_id);

-- name: LockServiceKey :one
SELECT * FROM service_key WHERE key_id = $1 FOR UPDATE;

-- name: CreateServiceKey :one
INSERT INTO service_key (key_id, name, digest, permissions, networks, expires_at, created_by_kind, created_by_id,
    created_by_name)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
RETURNING *;

-- name: EndServiceKey :one
UPDATE service_key
SET expires_at = coalesce(sqlc.narg(expires_at), expires_at), revoked_at = coalesce(revoked_at, sqlc.narg(revoked_at)),
    version = version + 1, updated_at = clock_timestamp()
WHERE key_id = sqlc.arg(key_id)
RETURNING *;

-- name: KeepServiceKey :exec
UPDATE service_key SET kept_at = clock_timestamp(), version = version + 1, updated_at = clock_timestamp()
WHERE key_id = sqlc.arg(key_id);

-- name: ServiceKeyUsed :exec
UPDATE service_key SET last_used_at = date_trunc('minute', clock_timestamp())
WHERE key_id = $1 AND (last_used_at IS NULL OR last_used_at < date_trunc('minute', clock_timestamp()));
