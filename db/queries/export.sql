-- Files that people export; see Store.ExportWork.

-- name: RequestExport :one
INSERT INTO export (tenant_id, requested_by_kind, requested_by_id, request)
VALUES (sqlc.arg(tenant_id), sqlc.arg(by_kind), sqlc.arg(by_id), sqlc.arg(request))
RETURNING *;

-- name: CountOpenExports :one
SELECT count(*) FROM export WHERE tenant_id = sqlc.arg(tenant_id) AND finished_at IS NULL;

-- name: Export :one
SELECT * FROM export
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id)
    AND (finished_at IS NULL OR finished_at > sqlc.arg(finished_after)::timestamptz);

-- name: OpenExport :one
SELECT * FROM export
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND finished_at IS NULL;

-- name: LockExport :one
-- The open one, so that two processes do not work on it at once.
SELECT * FROM export
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND finished_at IS NULL
FOR UPDATE;

-- name: ExportBytes :one
SELECT coalesce(sum(bytes), 0)::bigint FROM export WHERE tenant_id = sqlc.arg(tenant_id);

-- name: AddExportChunk :exec
INSERT INTO export_chunk (tenant_id, export_id, number, data)
VALUES (sqlc.arg(tenant_id), sqlc.arg(export_id), sqlc.arg(number), sqlc.arg(data));

-- name: NoteExport :exec
-- Adds a chunk; with is_last it was the last.
UPDATE export SET place = sqlc.arg(place), chunks = chunks + 1, rows = rows + sqlc.arg(rows)::bigint,
    bytes = bytes + sqlc.arg(bytes)::bigint, error = '',
    finished_at = CASE WHEN sqlc.arg(is_last)::boolean THEN clock_timestamp() END
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id);

-- name: NoteExportError :exec
UPDATE export SET error = sqlc.arg(error)
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND finished_at IS NULL;

-- name: FailExport :exec
-- It has no file.
WITH dropped AS (
    DELETE FROM export_chunk AS c WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.export_id = sqlc.arg(export_id)
)
UPDATE export AS e SET error = sqlc.arg(error), bytes = 0, chunks = 0, finished_at = clock_timestamp()
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.export_id = sqlc.arg(export_id) AND e.finished_at IS NULL;

-- name: ExportChunk :one
SELECT data FROM export_chunk
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND number = sqlc.arg(number);

-- name: EraseExports :execrows
-- Any file may name any user.
DELETE FROM export WHERE tenant_id = sqlc.arg(tenant_id);
