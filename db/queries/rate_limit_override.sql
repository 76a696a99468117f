-- name: NewerOverrides :batchmany
-- Reads removed overrides too: processes need the time from which the rule's own limit is in force again.
SELECT * FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, rule_id, user_id)
        > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_rule_id)::bigint, sqlc.arg(after_user_id)::text)
ORDER BY revision, rule_id, user_id
LIMIT sqlc.arg(page_size);

-- name: OverridesAfter :many
SELECT * FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id) AND user_id > sqlc.arg(after)
    AND user_id >= sqlc.arg(first)
    AND removed_at IS NULL
ORDER BY user_id
LIMIT sqlc.arg(page_size);

-- name: OverridesOfUser :many
SELECT * FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id) AND rule_id > sqlc.arg(after)
    AND removed_at IS NULL
ORDER BY rule_id
LIMIT sqlc.arg(page_size);

-- name: OverridesByUser :many
SELECT * FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id) AND removed_at IS NULL
    AND (user_id, rule_id) > (sqlc.arg(after_user_id)::text, sqlc.arg(after_rule_id)::bigint)
ORDER BY user_id, rule_id
LIMIT sqlc.arg(page_size);

-- name: OverridesByEnd :many
SELECT * FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id) AND removed_at IS NULL AND expires_at IS NOT NULL
    AND (expires_at, rule_id, user_id)
        > (sqlc.arg(after_end)::timestamptz, sqlc.arg(after_rule_id)::bigint, sqlc.arg(after_user_id)::text)
    AND expires_at < sqlc.arg(ends_before)
ORDER BY expires_at, rule_id, user_id
LIMIT sqlc.arg(page_size);

-- name: Override :one
SELECT * FROM rate_limit_override WHERE tenant_id = $1 AND rule_id = $2 AND user_id = $3 AND removed_at IS NULL;

-- name: UnexpiredOverrides :many
SELECT * FROM rate_limit_override
WHERE tenant_id = $1 AND removed_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
ORDER BY rule_id, user_id;

-- name: UnexpiredOverridesOfRules :many
SELECT sqlc.embed(o), coalesce((
    SELECT a.plan FROM plan_assignment AS a
    WHERE a.tenant_id = o.tenant_id AND a.user_id = o.user_id AND a.removed_at IS NULL), '')::text AS plan
FROM rate_limit_override AS o
WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.rule_id = ANY (sqlc.arg(rule_ids)::bigint[]) AND o.removed_at IS NULL
    AND (o.expires_at IS NULL OR o.expires_at > clock_timestamp())
ORDER BY o.rule_id, o.user_id;

-- name: PutOverrides :many
-- One statement runs the triggers once. Names no user of a rule twice; no row for a rule that does not exist.
INSERT INTO rate_limit_override AS o (
    tenant_id, rule_id, user_id, rate_per_second, rate_unit, burst_capacity, reason, expires_at, in_force_since,
        revision
)
SELECT
    r.tenant_id, r.rule_id, n.user_id, n.rate_per_second, n.rate_unit, n.burst_capacity, n.reason,
    nullif(n.expires_at, timestamptz '0001-01-01 00:00:00Z'), moment_after(ARRAY[r.in_force_since]),
    sqlc.arg(revision)
FROM (
    SELECT unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, unnest(sqlc.arg(user_ids)::text[]) AS user_id,
        unnest(sqlc.arg(rates)::float8[]) AS rate_per_second, unnest(sqlc.arg(rate_units)::text[]) AS rate_unit,
        unnest(sqlc.arg(bursts)::bigint[]) AS burst_capacity, unnest(sqlc.arg(reasons)::text[]) AS reason,
        unnest(sqlc.arg(expire_at)::timestamptz[]) AS expires_at -- the year 1: never
) AS n
JOIN rate_limit_rule AS r ON r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id = n.rule_id AND r.removed_at IS NULL
ON CONFLICT (tenant_id, rule_id, user_id) DO UPDATE
SET rate_per_second = excluded.rate_per_second,
    rate_unit = excluded.rate_unit,
    burst_capacity = excluded.burst_capacity,
    reason = excluded.reason,
    expires_at = excluded.expires_at,
    in_force_since = CASE
        WHEN o.rate_per_second = excluded.rate_per_second AND o.burst_capacity = excluded.burst_capacity
            AND o.removed_at IS NULL AND if_passed(o.expires_at) IS NULL
            THEN o.in_force_since
        -- After the end of an override each version of the rule counts as a microsecond later than the one before.
        ELSE moment_after(ARRAY[excluded.in_force_since, o.in_force_since,
            greatest(o.removed_at, if_passed(o.expires_at)) + (
            SELECT r.version * interval '1 microsecond' FROM rate_limit_rule AS r
            WHERE r.tenant_id = o.tenant_id AND r.rule_id = o.rule_id
        )])
    END,
    revision = excluded.revision,
    removed_at = NULL,
    updated_at = clock_timestamp()
RETURNING *;

-- name: RemoveOverrides :many
UPDATE rate_limit_override AS o
SET removed_at = moment_after(ARRAY[o.in_force_since, if_passed(o.expires_at)]),
    revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
FROM (
    SELECT unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, unnest(sqlc.arg(user_ids)::text[]) AS user_id
) AS n
WHERE o.tenant_id = sqlc.arg(tenant_id) AND o.rule_id = n.rule_id AND o.user_id = n.user_id AND o.removed_at IS NULL
RETURNING o.rule_id, o.user_id;

-- name: RemoveOverridesOfRules :exec
-- The rows stay: if a rule is revived before a process has read its removal, only these rows show that its overrides
-- are gone.
UPDATE rate_limit_override
SET removed_at = moment_after(ARRAY[in_force_since, if_passed(expires_at)]),
    revision = sqlc.arg(revision),
    updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = ANY (sqlc.arg(rule_ids)::bigint[]) AND removed_at IS NULL;
