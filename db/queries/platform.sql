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

-- name: MembershipsAfter :many
SELECT sqlc.embed(t), m.role
FROM member AS m
JOIN tenant AS t ON t.tenant_id = m.tenant_id
WHERE m.account_id = sqlc.arg(account_id) AND t.slug > sqlc.arg(after)
ORDER BY t.slug
LIMIT sqlc.arg(page_size);

-- name: InvitationByToken :one
-- The open one: whoever opens the link knows no tenant.
SELECT sqlc.embed(i), sqlc.embed(t)
FROM invitation AS i
JOIN tenant AS t ON t.tenant_id = i.tenant_id
WHERE i.token_digest = sqlc.arg(token_digest)
    AND i.accepted_at IS NULL AND i.revoked_at IS NULL AND i.expires_at > clock_timestamp();
