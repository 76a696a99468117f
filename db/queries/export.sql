
-- name: RequestExport :one
INSERT INTO export (tenant_id, requested_by_kind, requested_by_id, request)
VALUES (sqlc.arg(tenant_id), sqlc.arg(by_kind), sqlc.arg(by_id), sqlc.arg(request))
RETURNING *;

-- name: CountOpenExports :one
SELECT count(*) FROM export WHERE tenant_id = sqlc.arg(tenant_id) AND finished_at IS NULL;

-- name: MakeRoomForExport :one
-- Deletes the maker's oldest finished exports until one more makes at_most, and returns how many are left.
WITH own AS (
    SELECT e.export_id, row_number() OVER (ORDER BY e.finished_at IS NULL DESC, e.export_id DESC) AS place
    FROM export AS e
    WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.requested_by_kind = sqlc.arg(by_kind)
        AND e.requested_by_id = sqlc.arg(by_id)
), dropped AS (
    DELETE FROM export AS e
    WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.finished_at IS NOT NULL
        AND e.export_id IN (SELECT o.export_id FROM own AS o WHERE o.place >= sqlc.arg(at_most)::bigint)
    RETURNING e.export_id
)
SELECT ((SELECT count(*) FROM own) - (SELECT count(*) FROM dropped))::bigint AS left_over;

-- name: Export :one
SELECT * FROM export
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id)
    AND (finished_at IS NULL OR finished_at > sqlc.arg(finished_after)::timestamptz);

-- name: OpenExport :one
SELECT * FROM export
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND finished_at IS NULL;

-- name: LockExport :one
-- Two processes must not work on it at once.
SELECT * FROM export
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND finished_at IS NULL
FOR UPDATE;

-- name: ExportBytes :one
SELECT coalesce(sum(bytes), 0)::bigint FROM export WHERE tenant_id = sqlc.arg(tenant_id);

-- name: AddExportChunk :exec
INSERT INTO export_chunk (tenant_id, export_id, number, data)
VALUES (sqlc.arg(tenant_id), sqlc.arg(export_id), sqlc.arg(number), sqlc.arg(data));

-- name: NoteExport :exec
UPDATE export SET place = sqlc.arg(place), chunks = chunks + 1, rows = rows + sqlc.arg(rows)::bigint,
    bytes = bytes + sqlc.arg(bytes)::bigint, error = '',
    finished_at = CASE WHEN sqlc.arg(is_last)::boolean THEN clock_timestamp() END
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id);

-- name: NoteExportError :exec
UPDATE export SET error = sqlc.arg(error)
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND finished_at IS NULL;

-- name: FailExport :exec
WITH dropped AS (
    DELETE FROM export_chunk AS c WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.export_id = sqlc.arg(export_id)
)
UPDATE export AS e SET error = sqlc.arg(error), bytes = 0, chunks = 0, finished_at = clock_timestamp()
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.export_id = sqlc.arg(export_id) AND e.finished_at IS NULL;

-- name: ExportChunk :one
SELECT data FROM export_chunk
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = sqlc.arg(export_id) AND number = sqlc.arg(number);

-- name: EraseExports :execrows
-- Any file may name any user; a request about one has the id as a text of JSON.
DELETE FROM export
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (finished_at IS NOT NULL OR position(sqlc.arg(user_in_json)::text IN request::text) > 0);

-- name: LockExports :many
SELECT export_id FROM export WHERE tenant_id = sqlc.arg(tenant_id) ORDER BY export_id FOR UPDATE;

-- name: RestartExports :exec
-- Exports that have begun again at_most times fail instead.
UPDATE export AS e
SET place = '', restarts = e.restarts + 1, chunks = 0, rows = 0, bytes = 0,
    error = CASE WHEN e.restarts < sqlc.arg(at_most)::integer THEN e.error ELSE sqlc.arg(error)::text END,
    finished_at = CASE WHEN e.restarts >= sqlc.arg(at_most)::integer THEN clock_timestamp() END
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.export_id = ANY (sqlc.arg(export_ids)::bigint[])
    AND e.finished_at IS NULL;

-- name: DropExportChunks :exec
DELETE FROM export_chunk
WHERE tenant_id = sqlc.arg(tenant_id) AND export_id = ANY (sqlc.arg(export_ids)::bigint[]);

-- name: EvictExport :execrows
-- Deletes the oldest file of the maker with the most bytes, unless the maker of an export has more.
DELETE FROM export AS e
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.export_id = (
    SELECT o.export_id FROM export AS o
    JOIN (
        SELECT a.requested_by_kind, a.requested_by_id, sum(a.bytes) AS held FROM export AS a
        WHERE a.tenant_id = sqlc.arg(tenant_id)
        GROUP BY a.requested_by_kind, a.requested_by_id
    ) AS m ON m.requested_by_kind = o.requested_by_kind AND m.requested_by_id = o.requested_by_id
    WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.finished_at IS NOT NULL AND o.bytes > 0
        AND (o.requested_by_kind = sqlc.arg(by_kind) AND o.requested_by_id = sqlc.arg(by_id)
            OR m.held > sqlc.arg(held)::bigint + (
                SELECT coalesce(sum(b.bytes), 0) FROM export AS b
                WHERE b.tenant_id = sqlc.arg(tenant_id) AND b.requested_by_kind = sqlc.arg(by_kind)
                    AND b.requested_by_id = sqlc.arg(by_id)))
    ORDER BY m.held DESC, o.finished_at
    LIMIT 1
    FOR UPDATE OF o SKIP LOCKED);
