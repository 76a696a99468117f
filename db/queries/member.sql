-- name: MembersAfter :many
SELECT sqlc.embed(m), a.account_id, a.email, a.name, a.is_platform_admin, a.disabled_at,
    a.created_at AS account_created_at, a.version AS account_version, a.unproven_in, a.second_factor_at
FROM member AS m
JOIN account AS a ON a.account_id = m.account_id
WHERE m.tenant_id = sqlc.arg(tenant_id)
    AND (lower(a.email), a.account_id) > (lower(sqlc.arg(after)::text COLLATE "C"), sqlc.arg(after_id)::bigint)
ORDER BY lower(a.email), a.account_id
LIMIT sqlc.arg(page_size);

-- name: Member :one
SELECT sqlc.embed(m), a.account_id, a.email, a.name, a.is_platform_admin, a.disabled_at,
    a.created_at AS account_created_at, a.version AS account_version, a.unproven_in, a.second_factor_at
FROM member AS m
JOIN account AS a ON a.account_id = m.account_id
WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.account_id = sqlc.arg(account_id);

-- name: RoleIn :one
SELECT role FROM member WHERE tenant_id = $1 AND account_id = $2;

-- name: HasMemberWithEmail :one
SELECT EXISTS (
    SELECT FROM member AS m
    JOIN account AS a ON a.account_id = m.account_id
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND lower(a.email) = lower(sqlc.arg(email)::text COLLATE "C")
);

-- name: HasOtherOwner :one
-- Only owners who can sign in count.
SELECT EXISTS (
    SELECT FROM member AS m
    JOIN account AS a ON a.account_id = m.account_id
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.account_id <> sqlc.arg(account_id)
        AND m.role = 'owner' AND a.disabled_at IS NULL
);

-- name: MayInvite :one
-- The lock makes a concurrent removal of the role wait until the invitation is stored, and then see it.
SELECT (a.disabled_at IS NULL AND (a.is_platform_admin OR EXISTS (
    SELECT FROM member AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.account_id = a.account_id AND m.role = 'owner'
)))::boolean AS may
FROM account AS a
WHERE a.account_id = sqlc.arg(account_id)
FOR SHARE OF a;

-- name: CreateMember :exec
INSERT INTO member (tenant_id, account_id, role) VALUES ($1, $2, $3);

-- name: CreateGrantedMember :exec
INSERT INTO member (tenant_id, account_id, role, granted_by) VALUES ($1, $2, $3, $4);

-- name: ChangeGrantedRole :exec
UPDATE member
SET role = sqlc.arg(role), version = version + 1, updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND account_id = sqlc.arg(account_id);

-- name: ChangeRole :exec
-- The groups of a provider do not change a person's decision.
UPDATE member
SET role = sqlc.arg(role), granted_by = '', version = version + 1, updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND account_id = sqlc.arg(account_id);

-- name: RemoveMember :exec
DELETE FROM member WHERE tenant_id = $1 AND account_id = $2;

-- name: ProvenMember :one
-- The member must have proven the address and be able to sign in.
SELECT a.account_id, a.email FROM member AS m
JOIN account AS a ON a.account_id = m.account_id
WHERE m.tenant_id = sqlc.arg(tenant_id) AND lower(a.email) = lower(sqlc.arg(email)::text COLLATE "C")
    AND a.disabled_at IS NULL AND a.unproven_in IS NULL;
