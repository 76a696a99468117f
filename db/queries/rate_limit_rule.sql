-- name: NewerRules :batchmany
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, rule_id) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_rule_id)::bigint)
    AND (removed_at IS NULL OR sqlc.arg(with_removed)::boolean)
ORDER BY revision, rule_id
LIMIT sqlc.arg(page_size);

-- name: AllRules :many
SELECT * FROM rate_limit_rule WHERE tenant_id = $1 AND removed_at IS NULL;

-- name: RulesPage :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id > sqlc.arg(after) AND rule_id <= sqlc.arg(last) AND removed_at IS NULL
    AND (sqlc.arg(scope)::text = '' OR scope = sqlc.arg(scope)::text)
    AND (sqlc.narg(plan)::text IS NULL OR coalesce(plan, '') = sqlc.narg(plan)::text)
    AND (sqlc.narg(name)::text IS NULL OR name = sqlc.narg(name)::text)
    AND (sqlc.narg(meter)::text IS NULL OR coalesce(parameters ->> 'meter', '') = sqlc.narg(meter)::text)
    AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
    AND (sqlc.arg(action)::text = '' OR action = sqlc.arg(action)::text)
    AND (sqlc.narg(is_active)::boolean IS NULL OR is_active = sqlc.narg(is_active)::boolean)
    AND (sqlc.arg(key_pattern)::text = '' OR key_pattern = sqlc.arg(key_pattern)::text)
    AND (sqlc.arg(containing)::text = ''
        OR strpos(lower(key_pattern COLLATE "C"), lower(sqlc.arg(containing)::text COLLATE "C")) > 0
        OR strpos(lower(name COLLATE "C"), lower(sqlc.arg(containing)::text COLLATE "C")) > 0
        OR strpos(lower(description COLLATE "C"), lower(sqlc.arg(containing)::text COLLATE "C")) > 0)
ORDER BY rule_id
LIMIT sqlc.arg(page_size);

-- name: RulesLookedAt :one
-- No row if there are fewer.
SELECT rule_id FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id > sqlc.arg(after) AND removed_at IS NULL
ORDER BY rule_id
LIMIT 1 OFFSET sqlc.arg(number)::bigint - 1;

-- name: MatrixLast :one
-- A page ends at a number of rows or of rules; no row if there are fewer. As a subquery of MatrixPage the planner would
-- expect to read all rows.
(
    SELECT DISTINCT r.key_pattern, r.name FROM rate_limit_rule AS r
    WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.removed_at IS NULL
        AND (r.key_pattern, r.name) > (sqlc.arg(after_pattern)::text, sqlc.arg(after_name)::text)
    ORDER BY r.key_pattern, r.name
    LIMIT 1 OFFSET sqlc.arg(rows)::bigint - 1
)
UNION ALL (
    SELECT r.key_pattern, r.name FROM rate_limit_rule AS r
    WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.removed_at IS NULL
        AND (r.key_pattern, r.name) > (sqlc.arg(after_pattern)::text, sqlc.arg(after_name)::text)
    ORDER BY r.key_pattern, r.name
    LIMIT 1 OFFSET sqlc.arg(rules)::bigint - 1
)
ORDER BY key_pattern, name
LIMIT 1;

-- name: MatrixPage :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND removed_at IS NULL
    AND (key_pattern, name) > (sqlc.arg(after_pattern)::text, sqlc.arg(after_name)::text)
    AND (sqlc.arg(to_end)::boolean OR (key_pattern, name) <= (sqlc.arg(last_pattern)::text, sqlc.arg(last_name)::text))
ORDER BY key_pattern, name, plan NULLS FIRST;

-- name: RulesByID :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = ANY (sqlc.arg(rule_ids)::bigint[]) AND removed_at IS NULL;

-- name: RulesEver :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = ANY (sqlc.arg(rule_ids)::bigint[]);

-- name: RulesOfPatterns :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND key_pattern = ANY (sqlc.arg(key_patterns)::text[]) AND removed_at IS NULL;

-- name: RulesOfPlan :many
SELECT rule_id FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND plan = sqlc.arg(plan)::text AND removed_at IS NULL
ORDER BY rule_id;

-- name: RemovedRule :one
SELECT * FROM rate_limit_rule WHERE tenant_id = $1 AND rule_id = $2 AND removed_at IS NOT NULL;

-- name: Rule :one
SELECT * FROM rate_limit_rule WHERE tenant_id = $1 AND rule_id = $2 AND removed_at IS NULL;

-- name: CreateRule :batchone
INSERT INTO rate_limit_rule (
    tenant_id, name, key_pattern, scope, plan, rate_per_second, rate_unit, burst_capacity, algorithm, mode,
    action, failure_mode, is_active, description, in_force_since, revision, parameters, candidate_for, expires_at
) VALUES (
    sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(key_pattern), sqlc.arg(scope), nullif(sqlc.arg(plan)::text, ''),
    sqlc.arg(rate_per_second), sqlc.arg(rate_unit), sqlc.arg(burst_capacity), sqlc.arg(algorithm), sqlc.arg(mode),
    sqlc.arg(action), sqlc.narg(failure_mode), sqlc.arg(is_active), sqlc.arg(description),
    clock_timestamp(), sqlc.arg(revision), sqlc.arg(parameters), sqlc.narg(candidate_for),
    coalesce(clock_timestamp() + sqlc.narg(expires_in_seconds)::bigint * interval '1 second',
        sqlc.narg(expires_at)::timestamptz)
)
RETURNING *;

-- name: UpdateRule :batchone
-- A limit that changes comes into force after everything that this rule's buckets may have seen. An enforced rule is no
-- candidate any more. Parameters that a newer release knows stay as they are.
UPDATE rate_limit_rule AS r
SET rate_per_second = sqlc.arg(rate_per_second),
    rate_unit = sqlc.arg(rate_unit),
    burst_capacity = sqlc.arg(burst_capacity),
    algorithm = sqlc.arg(algorithm),
    mode = sqlc.arg(mode),
    action = sqlc.arg(action),
    failure_mode = sqlc.narg(failure_mode),
    is_active = sqlc.arg(is_active),
    description = sqlc.arg(description),
    parameters = r.parameters - sqlc.arg(known)::text[] || sqlc.arg(parameters)::jsonb,
    candidate_for = CASE WHEN sqlc.arg(mode) = 'shadow' THEN r.candidate_for END,
    expires_at = coalesce(
        clock_timestamp() + sqlc.narg(expires_in_seconds)::bigint * interval '1 second',
            sqlc.narg(expires_at)::timestamptz),
    version = r.version + 1,
    in_force_since = CASE WHEN NOT sqlc.arg(limit_changes)::boolean THEN r.in_force_since
        ELSE moment_after(ARRAY[r.in_force_since, (
            SELECT max(greatest(o.removed_at, if_passed(o.expires_at)))
            FROM rate_limit_override AS o
            WHERE o.tenant_id = r.tenant_id AND o.rule_id = r.rule_id), (
            SELECT greatest(s.in_force_since,
                CASE WHEN s.ends_at <= clock_timestamp() THEN s.ends_at + r.version * interval '1 microsecond' END)
            FROM rate_limit_step AS s
            WHERE s.tenant_id = r.tenant_id AND s.rule_id = r.rule_id)])
    END,
    revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id = sqlc.arg(rule_id) AND r.removed_at IS NULL
RETURNING *;

-- name: RemoveRule :batchone
-- The removal is later than everything that the rule's buckets may have seen, and a revival later still.
UPDATE rate_limit_rule AS r
SET removed_at = moment_after(ARRAY[r.in_force_since, (
        SELECT max(greatest(o.in_force_since, o.removed_at, if_passed(o.expires_at)))
        FROM rate_limit_override AS o
        WHERE o.tenant_id = r.tenant_id AND o.rule_id = r.rule_id)]),
    version = r.version + 1,
    revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id = sqlc.arg(rule_id) AND r.removed_at IS NULL
RETURNING rule_id;

-- name: ReviveRule :exec
UPDATE rate_limit_rule
SET removed_at = NULL,
    in_force_since = moment_after(ARRAY[in_force_since, removed_at]),
    version = version + 1,
    revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id) AND removed_at IS NOT NULL;

-- name: Meters :many
SELECT DISTINCT (parameters ->> 'meter')::text AS meter FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND parameters ? 'meter' AND removed_at IS NULL
ORDER BY 1;

-- name: AdaptingRules :many
SELECT * FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND parameters ? 'adapt' AND removed_at IS NULL
ORDER BY rule_id
LIMIT 1000;

-- name: CountAdaptingRules :one
SELECT count(*) FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND parameters ? 'adapt' AND removed_at IS NULL
    AND rule_id <> ALL (sqlc.arg(without)::bigint[]);

-- name: CandidatesOf :many
SELECT rule_id FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND candidate_for = ANY (sqlc.arg(rule_ids)::bigint[]) AND removed_at IS NULL
ORDER BY rule_id;
