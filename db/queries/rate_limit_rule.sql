-- name: NewerRules :batchmany
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, rule_id) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_rule_id)::bigint)
    AND (removed_at IS NULL OR sqlc.arg(with_removed)::boolean)
ORDER BY revision, rule_id
LIMIT sqlc.arg(page_size);

-- name: RulesAfter :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id > sqlc.arg(after) AND removed_at IS NULL
ORDER BY rule_id
LIMIT sqlc.arg(page_size);

-- name: Rule :one
SELECT * FROM rate_limit_rule WHERE tenant_id = $1 AND rule_id = $2 AND removed_at IS NULL;

-- name: CreateRule :batchone
INSERT INTO rate_limit_rule (
    tenant_id, name, key_pattern, scope, plan, rate_per_second, rate_unit, burst_capacity, algorithm, mode,
    action, failure_mode, is_active, description, in_force_since, revision
) VALUES (
    sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(key_pattern), sqlc.arg(scope), nullif(sqlc.arg(plan)::text, ''),
    sqlc.arg(rate_per_second), sqlc.arg(rate_unit), sqlc.arg(burst_capacity), sqlc.arg(algorithm), sqlc.arg(mode),
    sqlc.arg(action), nullif(sqlc.arg(failure_mode)::text, ''), sqlc.arg(is_active), sqlc.arg(description),
    clock_timestamp(), sqlc.arg(revision)
)
RETURNING *;

-- name: UpdateRule :batchone
-- A changed limit comes into force after everything that this rule's buckets may have seen: its own
-- earlier limits, and overrides that ended.
UPDATE rate_limit_rule AS r
SET rate_per_second = sqlc.arg(rate_per_second),
    rate_unit = sqlc.arg(rate_unit),
    burst_capacity = sqlc.arg(burst_capacity),
    algorithm = sqlc.arg(algorithm),
    mode = sqlc.arg(mode),
    action = sqlc.arg(action),
    failure_mode = nullif(sqlc.arg(failure_mode)::text, ''),
    is_active = sqlc.arg(is_active),
    description = sqlc.arg(description),
    version = r.version + 1,
    in_force_since = CASE
        WHEN r.rate_per_second = sqlc.arg(rate_per_second) AND r.burst_capacity = sqlc.arg(burst_capacity)
            THEN r.in_force_since
        ELSE moment_after(ARRAY[r.in_force_since, (
            SELECT max(greatest(o.removed_at, if_passed(o.expires_at)))
            FROM rate_limit_override AS o
            WHERE o.tenant_id = r.tenant_id AND o.rule_id = r.rule_id)])
    END,
    revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id = sqlc.arg(rule_id) AND r.removed_at IS NULL
RETURNING *;

-- name: RemoveRule :batchone
UPDATE rate_limit_rule
SET removed_at = clock_timestamp(), version = version + 1, revision = sqlc.arg(revision), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id) AND removed_at IS NULL
RETURNING rule_id;
