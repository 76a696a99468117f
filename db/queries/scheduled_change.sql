-- name: CreateScheduledChange :one
INSERT INTO scheduled_change (
    tenant_id, rule_id, requested_by_kind, requested_by_id, requested_by_name, patch, fields, starts_at, ends_at, due_at
) VALUES (
    sqlc.arg(tenant_id), sqlc.arg(rule_id), sqlc.arg(by_kind), sqlc.arg(by_id), sqlc.arg(by_name), sqlc.arg(patch), sqlc.arg(fields),
    sqlc.arg(starts_at), sqlc.narg(ends_at), sqlc.arg(starts_at)
)
RETURNING *;

-- name: ScheduledChange :one
SELECT * FROM scheduled_change WHERE tenant_id = sqlc.arg(tenant_id) AND change_id = sqlc.arg(change_id);

-- name: ScheduledChanges :many
-- The latest first; of one rule, or of all if it is 0.
SELECT * FROM scheduled_change
WHERE tenant_id = sqlc.arg(tenant_id) AND change_id < sqlc.arg(before)
    AND (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
    AND (due_at IS NOT NULL OR NOT sqlc.arg(is_open)::boolean)
ORDER BY change_id DESC
LIMIT sqlc.arg(page_size);

-- name: OpenScheduledChanges :many
SELECT * FROM scheduled_change WHERE tenant_id = $1 AND due_at IS NOT NULL;

-- name: DropEndedScheduledChanges :exec
-- All but the latest.
DELETE FROM scheduled_change AS old
WHERE old.tenant_id = sqlc.arg(tenant_id) AND old.due_at IS NULL AND old.change_id <= (
    SELECT latest.change_id FROM scheduled_change AS latest
    WHERE latest.tenant_id = sqlc.arg(tenant_id) AND latest.due_at IS NULL
    ORDER BY latest.change_id DESC
    OFFSET sqlc.arg(kept)::integer LIMIT 1);

-- name: StepScheduledChange :one
UPDATE scheduled_change
SET state = sqlc.arg(state), due_at = sqlc.narg(due_at), before = sqlc.narg(before), applied_at = sqlc.narg(applied_at),
    ended_at = sqlc.narg(ended_at), failure = sqlc.arg(failure), lease_ends_at = NULL
WHERE tenant_id = sqlc.arg(tenant_id) AND change_id = sqlc.arg(change_id)
RETURNING *;
