-- name: CreateScheduledChange :one
INSERT INTO scheduled_change (
    tenant_id, requested_by_kind, requested_by_id, requested_by_name, title, patch, starts_at, ends_at, due_at
) VALUES (
    sqlc.arg(tenant_id), sqlc.arg(by_kind), sqlc.arg(by_id), sqlc.arg(by_name), sqlc.arg(title), sqlc.arg(patch),
    sqlc.arg(starts_at), sqlc.narg(ends_at), sqlc.arg(starts_at)
)
RETURNING *;

-- name: CreateScheduledRules :many
INSERT INTO scheduled_change_rule (tenant_id, change_id, rule_id, patch, fields)
SELECT sqlc.arg(tenant_id), sqlc.arg(change_id), asked.rule_id, asked.patch::jsonb, asked.fields::jsonb
FROM (
    SELECT unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, unnest(sqlc.arg(patches)::text[]) AS patch,
        unnest(sqlc.arg(all_fields)::text[]) AS fields
) AS asked
RETURNING *;

-- name: ScheduledChange :one
SELECT * FROM scheduled_change WHERE tenant_id = sqlc.arg(tenant_id) AND change_id = sqlc.arg(change_id);

-- name: ScheduledRules :many
SELECT * FROM scheduled_change_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND change_id = ANY(sqlc.arg(change_ids)::bigint[])
ORDER BY change_id, rule_id;

-- name: ScheduledChanges :many
-- Rule 0 is all rules.
SELECT * FROM scheduled_change AS c
WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.change_id < sqlc.arg(before)
    AND (c.due_at IS NOT NULL OR NOT sqlc.arg(is_open)::boolean)
    AND (sqlc.arg(rule_id)::bigint = 0 OR EXISTS (
        SELECT FROM scheduled_change_rule AS r
        WHERE r.tenant_id = c.tenant_id AND r.change_id = c.change_id AND r.rule_id = sqlc.arg(rule_id)::bigint))
ORDER BY c.change_id DESC
LIMIT sqlc.arg(page_size);

-- name: CountOpenScheduledChanges :one
SELECT count(*) FROM scheduled_change WHERE tenant_id = $1 AND due_at IS NOT NULL;

-- name: OpenScheduledOfRules :many
SELECT r.rule_id, c.starts_at, c.ends_at, c.state = 'in_force' AS is_in_force FROM scheduled_change_rule AS r
JOIN scheduled_change AS c ON c.tenant_id = r.tenant_id AND c.change_id = r.change_id
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id = ANY(sqlc.arg(rule_ids)::bigint[]) AND c.due_at IS NOT NULL;

-- name: DropEndedScheduledChanges :exec
DELETE FROM scheduled_change AS old
WHERE old.tenant_id = sqlc.arg(tenant_id) AND old.due_at IS NULL AND old.change_id <= (
    SELECT latest.change_id FROM scheduled_change AS latest
    WHERE latest.tenant_id = sqlc.arg(tenant_id) AND latest.due_at IS NULL
    ORDER BY latest.change_id DESC
    OFFSET sqlc.arg(kept)::integer LIMIT 1);

-- name: StepScheduledChange :one
UPDATE scheduled_change
SET state = sqlc.arg(state), due_at = sqlc.narg(due_at), applied_at = sqlc.narg(applied_at),
    ended_at = sqlc.narg(ended_at), failure = sqlc.arg(failure)
WHERE tenant_id = sqlc.arg(tenant_id) AND change_id = sqlc.arg(change_id)
RETURNING *;

-- name: StepScheduledRules :exec
UPDATE scheduled_change_rule AS r
SET before = nullif(step.before, '')::jsonb, failure = step.failure
FROM (
    SELECT unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, unnest(sqlc.arg(befores)::text[]) AS before,
        unnest(sqlc.arg(failures)::text[]) AS failure
) AS step
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.change_id = sqlc.arg(change_id) AND r.rule_id = step.rule_id;

-- name: CancelScheduledBy :exec
WITH canceled AS (
    UPDATE scheduled_change SET state = 'canceled', due_at = NULL, ended_at = clock_timestamp()
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_by_kind = 'account'
        AND requested_by_id = sqlc.arg(account_id)::bigint::text AND state = 'waiting'
    RETURNING change_id
)
DELETE FROM job AS j
WHERE j.tenant_id = sqlc.arg(tenant_id) AND j.kind = sqlc.arg(kind)
    AND j.about IN (SELECT c.change_id::text FROM canceled AS c) AND j.lease_ends_at IS NULL;

-- name: FirstOpenScheduledChange :one
-- A change that ends is taken back before another begins, which would otherwise keep the ended limit as the one before.
SELECT * FROM scheduled_change
WHERE tenant_id = sqlc.arg(tenant_id) AND due_at IS NOT NULL
ORDER BY due_at, state = 'waiting', change_id
LIMIT 1;
