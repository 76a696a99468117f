-- name: NewerAssignments :batchmany
SELECT * FROM plan_assignment
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, user_id) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_user_id)::text)
    AND (removed_at IS NULL OR sqlc.arg(with_removed)::boolean)
ORDER BY revision, user_id
LIMIT sqlc.arg(page_size);

-- name: AssignmentsAfter :many
SELECT * FROM plan_assignment
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id > sqlc.arg(after) AND removed_at IS NULL
    AND starts_with(user_id, sqlc.arg(prefix)::text)
    AND (sqlc.arg(plan)::text = '' OR plan = sqlc.arg(plan)::text)
ORDER BY user_id
LIMIT sqlc.arg(page_size);

-- name: Assignment :one
SELECT * FROM plan_assignment WHERE tenant_id = $1 AND user_id = $2 AND removed_at IS NULL;

-- name: IsSentPlan :one
-- Neither the user's assignment nor the tenant, which has the default, may have changed since.
SELECT (EXISTS (
    SELECT FROM plan AS p JOIN tenant AS t ON t.tenant_id = p.tenant_id
    WHERE p.tenant_id = sqlc.arg(tenant_id) AND p.name = sqlc.arg(plan) AND p.removed_at IS NULL
        AND t.updated_at < sqlc.arg(denied_at)::timestamptz
) AND NOT EXISTS (
    SELECT FROM plan_assignment AS a
    WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.user_id = sqlc.arg(user_id)
        AND a.updated_at >= sqlc.arg(denied_at)::timestamptz
))::boolean AS is_sent;

-- name: AssignUsers :execrows
-- ON CONFLICT locks, and so writes, rows that it leaves alone; most users of most files stay on their plan, and are
-- left out before it.
INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
SELECT sqlc.arg(tenant_id)::bigint, named.user_id, named.plan, sqlc.arg(revision)::bigint
FROM (SELECT unnest(sqlc.arg(user_ids)::text[]) AS user_id, unnest(sqlc.arg(plans)::text[]) AS plan) AS named
WHERE NOT EXISTS (
    SELECT FROM plan_assignment AS stays
    WHERE stays.tenant_id = sqlc.arg(tenant_id)::bigint AND stays.user_id = named.user_id
        AND stays.plan = named.plan AND stays.removed_at IS NULL
)
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET plan = excluded.plan, revision = excluded.revision, removed_at = NULL, updated_at = clock_timestamp()
WHERE plan_assignment.plan <> excluded.plan OR plan_assignment.removed_at IS NOT NULL;

-- name: MoveUsers :exec
UPDATE plan_assignment
SET plan = sqlc.arg(to_plan), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND plan = sqlc.arg(from_plan)::text AND removed_at IS NULL;

-- name: UnassignUsers :execrows
UPDATE plan_assignment
SET removed_at = clock_timestamp(), revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = ANY (sqlc.arg(user_ids)::text[]) AND removed_at IS NULL;
