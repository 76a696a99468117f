-- name: CreateTenant :one
INSERT INTO tenant (slug, name, retry_jitter_percent, ipv4_prefix, ipv6_prefix, failure_mode)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING *;

-- name: Tenant :one
SELECT * FROM tenant WHERE tenant_id = $1;

-- name: TenantBySlug :one
SELECT * FROM tenant WHERE slug = $1;

-- name: Tenants :many
SELECT * FROM tenant ORDER BY slug;

-- name: RaiseRevision :one
-- Opens every write: it locks the tenant against other writers until the transaction ends.
UPDATE tenant SET revision = revision + 1 WHERE tenant_id = $1
RETURNING revision;

-- name: UpdateTenant :one
UPDATE tenant
SET name = sqlc.arg(name),
    default_plan = nullif(sqlc.arg(default_plan)::text, ''),
    suspended_at = CASE WHEN sqlc.arg(suspended)::boolean THEN coalesce(suspended_at, clock_timestamp()) END,
    retry_jitter_percent = sqlc.arg(retry_jitter_percent),
    ipv4_prefix = sqlc.arg(ipv4_prefix),
    ipv6_prefix = sqlc.arg(ipv6_prefix),
    failure_mode = sqlc.arg(failure_mode),
    updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id)
RETURNING *;
