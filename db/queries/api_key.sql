-- name: NewerKeys :batchmany
-- Revoked ones as well, always, so that a key is known to be revoked and not merely unknown.
SELECT * FROM api_key
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, key_id) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_key_id)::text)
ORDER BY revision, key_id
LIMIT sqlc.arg(page_size);

-- name: Keys :many
SELECT * FROM api_key WHERE tenant_id = $1 ORDER BY created_at, key_id;

-- name: CreateKey :one
INSERT INTO api_key (tenant_id, key_id, name, digest, permissions, expires_at, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING *;

-- name: RevokeKey :execrows
UPDATE api_key
SET revoked_at = clock_timestamp(), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND key_id = sqlc.arg(key_id) AND revoked_at IS NULL;
