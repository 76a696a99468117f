-- The queries that must cross tenants. The lint test holds all other files to one tenant each.

-- name: ChangedTenants :many
-- Those that are missing from the known ones, or have a higher revision; a removed one only while it
-- is known.
SELECT tenant.*
FROM tenant
LEFT JOIN (
    SELECT unnest(sqlc.arg(known_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(known_revisions)::bigint[]) AS revision
) AS known
    ON known.tenant_id = tenant.tenant_id
WHERE (known.revision IS NULL AND tenant.removed_at IS NULL) OR tenant.revision > known.revision
ORDER BY tenant.tenant_id;

-- name: MembershipsAfter :many
SELECT sqlc.embed(t), m.role
FROM member AS m
JOIN tenant AS t ON t.tenant_id = m.tenant_id
WHERE m.account_id = sqlc.arg(account_id) AND t.slug > sqlc.arg(after) AND t.removed_at IS NULL
ORDER BY t.slug
LIMIT sqlc.arg(page_size);

-- name: InvitationByToken :one
-- The open one: whoever opens the link knows no tenant.
SELECT sqlc.embed(i), sqlc.embed(t)
FROM invitation AS i
JOIN tenant AS t ON t.tenant_id = i.tenant_id
WHERE i.token_digest = sqlc.arg(token_digest)
    AND i.accepted_at IS NULL AND i.revoked_at IS NULL AND i.expires_at > clock_timestamp()
    AND t.removed_at IS NULL;

-- name: RecordKeyUses :exec
-- Keys that do not exist (any more) are passed over, and a use never becomes earlier.
INSERT INTO api_key_use AS u (tenant_id, key_id, last_used_at)
SELECT k.tenant_id, k.key_id, used.at
FROM (
    SELECT unnest(sqlc.arg(key_ids)::text[]) AS key_id, unnest(sqlc.arg(at)::timestamptz[]) AS at
) AS used
JOIN api_key AS k ON k.key_id = used.key_id
ORDER BY k.tenant_id, k.key_id
ON CONFLICT (tenant_id, key_id) DO UPDATE SET last_used_at = excluded.last_used_at
WHERE u.last_used_at < excluded.last_used_at;

-- name: LockTenantsOf :exec
-- Those that an account owns or has invited to, before the account itself, as all writers do.
SELECT FROM tenant AS t
WHERE t.removed_at IS NULL AND t.tenant_id IN (
    SELECT m.tenant_id FROM member AS m
    WHERE m.account_id = sqlc.arg(account_id) AND m.role = 'owner'
    UNION ALL
    SELECT i.tenant_id FROM invitation AS i
    WHERE i.invited_by_account = sqlc.arg(account_id)::bigint AND i.accepted_at IS NULL AND i.revoked_at IS NULL
)
ORDER BY t.tenant_id
FOR NO KEY UPDATE;

-- name: RevokeInvitationsOfAccount :exec
-- The open ones that an account has made, in tenants that it may invite to no longer.
UPDATE invitation AS i
SET revoked_at = clock_timestamp(), updated_at = clock_timestamp()
FROM account AS a
WHERE a.account_id = sqlc.arg(account_id) AND i.invited_by_account = a.account_id
    AND i.accepted_at IS NULL AND i.revoked_at IS NULL
    AND (a.disabled_at IS NOT NULL OR NOT a.is_platform_admin AND NOT EXISTS (
        SELECT FROM member AS m
        WHERE m.tenant_id = i.tenant_id AND m.account_id = a.account_id AND m.role = 'owner'
    ));

-- name: TenantsOnlyOwnedBy :many
-- The slugs of those where nobody else is an owner who can sign in.
SELECT t.slug
FROM member AS m
JOIN tenant AS t ON t.tenant_id = m.tenant_id
WHERE m.account_id = sqlc.arg(account_id) AND m.role = 'owner' AND t.removed_at IS NULL AND NOT EXISTS (
    SELECT FROM member AS o
    JOIN account AS a ON a.account_id = o.account_id
    WHERE o.tenant_id = m.tenant_id AND o.account_id <> m.account_id AND o.role = 'owner' AND a.disabled_at IS NULL
)
ORDER BY t.slug;
