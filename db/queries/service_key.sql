-- name: ServiceKeys :many
-- The latest first, before a key.
SELECT * FROM service_key
WHERE sqlc.narg(before_created_at)::timestamptz IS NULL
    OR (created_at, key_id) < (sqlc.narg(before_created_at)::timestamptz, sqlc.arg(before_key_id)::text)
ORDER BY created_at DESC, key_id DESC
LIMIT sqlc.arg(page_size);

-- name: ServiceKey :one
SELECT * FROM service_key WHERE key_id = $1;

-- name: LockServiceKey :one
SELECT * FROM service_key WHERE key_id = $1 FOR UPDATE;

-- name: CreateServiceKey :one
INSERT INTO service_key (key_id, name, digest, permissions, networks, expires_at, created_by_kind, created_by_id, created_by_name)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
RETURNING *;

-- name: EndServiceKey :one
-- Revokes it, or lets it expire.
UPDATE service_key
SET expires_at = coalesce(sqlc.narg(expires_at), expires_at), revoked_at = coalesce(revoked_at, sqlc.narg(revoked_at)),
    version = version + 1, updated_at = clock_timestamp()
WHERE key_id = sqlc.arg(key_id)
RETURNING *;

-- name: ServiceKeyUsed :exec
UPDATE service_key SET last_used_at = date_trunc('minute', clock_timestamp())
WHERE key_id = $1 AND (last_used_at IS NULL OR last_used_at < date_trunc('minute', clock_timestamp()));
