-- name: CreateInvitation :one
INSERT INTO invitation (tenant_id, email, role, token_digest, invited_by, invited_by_account, expires_at, by_mail)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING *;

-- name: InvitationsBefore :many
-- 0 is no bound.
SELECT * FROM invitation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (sqlc.arg(before)::bigint = 0 OR invitation_id < sqlc.arg(before)::bigint)
    AND accepted_at IS NULL AND revoked_at IS NULL AND expires_at > clock_timestamp()
ORDER BY invitation_id DESC
LIMIT sqlc.arg(page_size);

-- name: RevokeInvitation :execrows
UPDATE invitation
SET revoked_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND invitation_id = sqlc.arg(invitation_id)
    AND accepted_at IS NULL AND revoked_at IS NULL;

-- name: RevokeInvitationsOf :exec
UPDATE invitation
SET revoked_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND lower(email) = lower(sqlc.arg(email)::text COLLATE "C")
    AND accepted_at IS NULL AND revoked_at IS NULL;

-- name: RevokeInvitationsBy :exec
UPDATE invitation
SET revoked_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND invited_by_account = sqlc.arg(account_id)::bigint
    AND accepted_at IS NULL AND revoked_at IS NULL;

-- name: OpenInvitation :one
-- Locked, because disabling an account revokes its invitations in all tenants.
SELECT * FROM invitation
WHERE tenant_id = $1 AND invitation_id = $2
    AND accepted_at IS NULL AND revoked_at IS NULL AND expires_at > clock_timestamp()
FOR UPDATE;

-- name: UseInvitation :exec
UPDATE invitation
SET accepted_at = clock_timestamp(), accepted_by = sqlc.arg(account_id)::bigint, updated_at = clock_timestamp()
WHERE tenant_id = sqlc.arg(tenant_id) AND invitation_id = sqlc.arg(invitation_id);

-- name: RenewInvitation :one
UPDATE invitation SET token_digest = sqlc.arg(token_digest)
WHERE tenant_id = sqlc.arg(tenant_id) AND invitation_id = sqlc.arg(invitation_id)
    AND accepted_at IS NULL AND revoked_at IS NULL AND expires_at > clock_timestamp()
RETURNING *;
