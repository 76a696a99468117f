-- The queries that must cross tenants. The lint test holds all other files to one tenant each.

-- name: ChangedTenants :many
-- Those that are missing from the known ones, or have a higher revision.
SELECT tenant.*
FROM tenant
LEFT JOIN (
    SELECT unnest(sqlc.arg(known_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(known_revisions)::bigint[]) AS revision
) AS known
    ON known.tenant_id = tenant.tenant_id
WHERE known.revision IS NULL OR tenant.revision > known.revision
ORDER BY tenant.tenant_id;
