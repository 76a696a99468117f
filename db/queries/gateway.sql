-- name: NewerGateways :batchmany
SELECT * FROM gateway
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, kind) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_kind)::text)
    AND (removed_at IS NULL OR sqlc.arg(with_removed)::boolean)
ORDER BY revision, kind
LIMIT sqlc.arg(page_size);

-- name: Gateways :many
SELECT * FROM gateway WHERE tenant_id = $1 AND removed_at IS NULL ORDER BY kind;

-- name: Gateway :one
SELECT * FROM gateway WHERE tenant_id = $1 AND kind = $2 AND removed_at IS NULL;

-- name: PutGateway :one
INSERT INTO gateway (tenant_id, kind, document, revision)
VALUES (sqlc.arg(tenant_id), sqlc.arg(kind), sqlc.arg(document), sqlc.arg(revision))
ON CONFLICT (tenant_id, kind) DO UPDATE
SET document = excluded.document, revision = excluded.revision, removed_at = NULL, updated_at = clock_timestamp()
RETURNING *;

-- name: RemoveGateway :execrows
UPDATE gateway
SET removed_at = clock_timestamp(), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND kind = sqlc.arg(kind) AND removed_at IS NULL;
