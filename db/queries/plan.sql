-- name: NewerPlans :batchmany
SELECT * FROM plan
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, name) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_name)::text)
    AND (removed_at IS NULL OR sqlc.arg(with_removed)::boolean)
ORDER BY revision, name
LIMIT sqlc.arg(page_size);

-- name: PlanUses :many
SELECT
    sqlc.embed(p),
    coalesce((SELECT u.rules FROM plan_use AS u WHERE u.tenant_id = p.tenant_id AND u.plan = p.name), 0)::bigint
        AS rules,
    coalesce((SELECT u.users FROM plan_use AS u WHERE u.tenant_id = p.tenant_id AND u.plan = p.name), 0)::bigint
        AS users,
    EXISTS (SELECT FROM tenant AS t WHERE t.tenant_id = p.tenant_id AND t.default_plan = p.name) AS is_default
FROM plan AS p
WHERE p.tenant_id = sqlc.arg(tenant_id) AND p.name > sqlc.arg(after) AND p.removed_at IS NULL
ORDER BY p.name
LIMIT sqlc.arg(page_size);

-- name: PlanUse :one
SELECT
    sqlc.embed(p),
    coalesce((SELECT u.rules FROM plan_use AS u WHERE u.tenant_id = p.tenant_id AND u.plan = p.name), 0)::bigint
        AS rules,
    coalesce((SELECT u.users FROM plan_use AS u WHERE u.tenant_id = p.tenant_id AND u.plan = p.name), 0)::bigint
        AS users,
    EXISTS (SELECT FROM tenant AS t WHERE t.tenant_id = p.tenant_id AND t.default_plan = p.name) AS is_default
FROM plan AS p
WHERE p.tenant_id = $1 AND p.name = $2 AND p.removed_at IS NULL;

-- name: PlanNames :many
SELECT name FROM plan WHERE tenant_id = $1 AND removed_at IS NULL;

-- name: Plan :one
SELECT * FROM plan WHERE tenant_id = $1 AND name = $2 AND removed_at IS NULL;

-- name: CreatePlan :one
-- Position 0 is after the other plans. No row if the plan exists.
INSERT INTO plan (tenant_id, name, description, revision, position)
VALUES (sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(description), sqlc.arg(revision), coalesce(
    nullif(sqlc.arg(position)::float8, 0),
    (SELECT max(p.position) + 1 FROM plan AS p WHERE p.tenant_id = sqlc.arg(tenant_id) AND p.removed_at IS NULL),
    1
))
ON CONFLICT (tenant_id, name) DO UPDATE
SET description = excluded.description,
    revision = excluded.revision,
    position = excluded.position,
    removed_at = NULL,
    created_at = excluded.created_at,
    updated_at = clock_timestamp()
WHERE plan.removed_at IS NOT NULL
RETURNING *;

-- name: UpdatePlan :one
UPDATE plan
SET description = sqlc.arg(description), position = sqlc.arg(position), revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND name = sqlc.arg(name) AND removed_at IS NULL
RETURNING *;

-- name: RemovePlan :execrows
UPDATE plan
SET removed_at = clock_timestamp(), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND name = sqlc.arg(name) AND removed_at IS NULL;

-- name: CountRulesLater :exec
-- This transaction must run CountRules; see count_plan_use.
SELECT set_config('sluice.count_rules', 'later', true);

-- name: CountRules :exec
INSERT INTO plan_use (tenant_id, plan, rules)
SELECT sqlc.arg(tenant_id)::bigint, p.name, (
    SELECT count(*) FROM rate_limit_rule AS r
    WHERE r.tenant_id = p.tenant_id AND r.plan = p.name AND r.removed_at IS NULL)
FROM plan AS p
WHERE p.tenant_id = sqlc.arg(tenant_id)
ON CONFLICT (tenant_id, plan) DO UPDATE SET rules = excluded.rules;
