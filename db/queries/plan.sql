-- name: NewerPlans :batchmany
SELECT * FROM plan
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, name) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_name)::text)
    AND (removed_at IS NULL OR sqlc.arg(with_removed)::boolean)
ORDER BY revision, name
LIMIT sqlc.arg(page_size);

-- name: Plans :many
SELECT * FROM plan WHERE tenant_id = $1 AND removed_at IS NULL ORDER BY name;

-- name: Plan :one
SELECT * FROM plan WHERE tenant_id = $1 AND name = $2 AND removed_at IS NULL;

-- name: CreatePlan :one
-- Answers no row if there is such a plan.
INSERT INTO plan (tenant_id, name, description, revision)
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, name) DO UPDATE
SET description = excluded.description,
    revision = excluded.revision,
    removed_at = NULL,
    created_at = excluded.created_at,
    updated_at = clock_timestamp()
WHERE plan.removed_at IS NOT NULL
RETURNING *;

-- name: UpdatePlan :one
UPDATE plan
SET description = sqlc.arg(description), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND name = sqlc.arg(name) AND removed_at IS NULL
RETURNING *;

-- name: RemovePlan :execrows
UPDATE plan
SET removed_at = clock_timestamp(), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND name = sqlc.arg(name) AND removed_at IS NULL;

-- name: PlanUse :one
-- Who would be left without the plan.
SELECT
    (SELECT count(*) FROM rate_limit_rule AS r WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.plan = sqlc.arg(name)::text AND r.removed_at IS NULL) AS rules,
    (SELECT count(*) FROM tenant_user AS u WHERE u.tenant_id = sqlc.arg(tenant_id) AND u.plan = sqlc.arg(name)::text AND u.removed_at IS NULL) AS users,
    EXISTS (SELECT FROM tenant AS t WHERE t.tenant_id = sqlc.arg(tenant_id) AND t.default_plan = sqlc.arg(name)::text) AS is_default;
