-- name: CreateTenant :one
INSERT INTO tenant (slug, name, default_plan, suspended_at, enforcement, retry_jitter_percent, ipv4_prefix, ipv6_prefix,
    failure_mode, fixed_rates,
    record_days, require_second_factor)
VALUES (
    sqlc.arg(slug), sqlc.arg(name), nullif(sqlc.arg(default_plan)::text, ''),
    CASE WHEN sqlc.arg(suspended)::boolean THEN clock_timestamp() END,
    sqlc.arg(enforcement), sqlc.arg(retry_jitter_percent), sqlc.arg(ipv4_prefix), sqlc.arg(ipv6_prefix),
        sqlc.arg(failure_mode),
    sqlc.arg(fixed_rates), sqlc.arg(record_days), sqlc.arg(require_second_factor)
)
RETURNING *;

-- name: Tenant :one
SELECT * FROM tenant WHERE tenant_id = $1 AND removed_at IS NULL;

-- name: TenantBySlug :one
SELECT * FROM tenant WHERE slug = $1 AND removed_at IS NULL;

-- name: Tenants :many
SELECT * FROM tenant
WHERE slug > sqlc.arg(after) AND removed_at IS NULL
    AND (strpos(slug, lower(sqlc.arg(containing)::text)) > 0
        OR strpos(lower(name), lower(sqlc.arg(containing)::text)) > 0)
ORDER BY slug
LIMIT sqlc.arg(page_size);

-- name: SetActor :exec
SELECT set_config('sluice.actor', sqlc.arg(actor)::text, true);

-- name: RaiseRevision :one
-- Locks the tenant against other writers until the transaction ends, and sets the actor of the audit log.
UPDATE tenant SET revision = revision + 1 WHERE tenant_id = $1 AND removed_at IS NULL
RETURNING revision, set_config('sluice.actor', sqlc.arg(actor)::text, true);

-- name: LockTenant :one
SELECT tenant_id, set_config('sluice.actor', sqlc.arg(actor)::text, true) FROM tenant
WHERE tenant_id = $1 AND removed_at IS NULL
FOR NO KEY UPDATE;

-- name: UpdateTenant :one
UPDATE tenant
SET name = sqlc.arg(name),
    default_plan = nullif(sqlc.arg(default_plan)::text, ''),
    suspended_at = CASE WHEN sqlc.arg(suspended)::boolean THEN coalesce(suspended_at, clock_timestamp()) END,
    enforcement = sqlc.arg(enforcement),
    retry_jitter_percent = sqlc.arg(retry_jitter_percent),
    ipv4_prefix = sqlc.arg(ipv4_prefix),
    ipv6_prefix = sqlc.arg(ipv6_prefix),
    failure_mode = sqlc.arg(failure_mode),
    fixed_rates = sqlc.arg(fixed_rates),
    record_days = sqlc.arg(record_days),
    require_second_factor = sqlc.arg(require_second_factor),
    version = version + 1,
    updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id)
RETURNING *;

-- name: RemoveTenant :exec
UPDATE tenant SET removed_at = clock_timestamp(), version = version + 1, updated_at = clock_timestamp()
WHERE tenant_id = $1;
