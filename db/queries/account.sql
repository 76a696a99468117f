-- name: CreateAccount :one
INSERT INTO account (email, name, is_platform_admin, password_hash, unproven_in)
VALUES ($1, $2, $3, $4, $5)
RETURNING *;

-- name: Account :one
SELECT * FROM account WHERE account_id = $1;

-- name: AddressOf :one
SELECT email FROM account WHERE account_id = $1;

-- name: AccountsAfter :many
SELECT * FROM account
WHERE (lower(email), account_id) > (lower(sqlc.arg(after)::text COLLATE "C"), sqlc.arg(after_id)::bigint)
    AND (position(lower(sqlc.arg(text)::text COLLATE "C") IN lower(email)) > 0
        OR position(lower(sqlc.arg(text)::text) IN lower(name)) > 0)
ORDER BY lower(email), account_id
LIMIT sqlc.arg(page_size);

-- name: ProveAccount :one
-- No row if it is proven already.
UPDATE account SET unproven_in = NULL, version = version + 1, updated_at = clock_timestamp()
WHERE account_id = $1 AND unproven_in IS NOT NULL
RETURNING *;

-- name: UpdateAccount :one
-- No row if the account has another version.
UPDATE account
SET name = sqlc.arg(name),
    admin_by = CASE WHEN is_platform_admin = sqlc.arg(is_platform_admin) THEN admin_by ELSE '' END,
    is_platform_admin = sqlc.arg(is_platform_admin),
    disabled_at = CASE WHEN sqlc.arg(disabled)::boolean THEN coalesce(disabled_at, clock_timestamp()) END,
    version = version + 1,
    updated_at = clock_timestamp()
WHERE account_id = sqlc.arg(account_id) AND version = sqlc.arg(version)
RETURNING *;

-- name: LockPlatformAdmins :many
-- Locks the platform admins who can sign in. If two admins remove each other at once, the second transaction waits and
-- then sees that nobody else is left.
SELECT account_id FROM account
WHERE is_platform_admin AND disabled_at IS NULL
ORDER BY account_id
FOR NO KEY UPDATE;

-- name: SetPasswordHash :execrows
-- No row if the account has another hash than the one to replace.
UPDATE account
SET password_hash = sqlc.arg(new_hash), updated_at = clock_timestamp()
WHERE account_id = sqlc.arg(account_id) AND password_hash = sqlc.arg(old_hash);

-- name: UnprovenAccount :one
SELECT * FROM account
WHERE unproven_in = sqlc.arg(tenant)::bigint AND lower(email) = lower(sqlc.arg(email)::text COLLATE "C")
FOR NO KEY UPDATE;

-- name: CreateMailedLink :exec
INSERT INTO mailed_link (account_id, purpose, token_digest, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (account_id, purpose) DO UPDATE SET token_digest = excluded.token_digest, expires_at = excluded.expires_at;

-- name: MailedLinkOf :one
SELECT account_id FROM mailed_link
WHERE token_digest = sqlc.arg(token_digest) AND purpose = sqlc.arg(purpose) AND expires_at > clock_timestamp();

-- name: UseMailedLink :one
DELETE FROM mailed_link
WHERE token_digest = sqlc.arg(token_digest) AND purpose = sqlc.arg(purpose) AND expires_at > clock_timestamp()
RETURNING account_id;

-- name: DropMailedLinks :exec
DELETE FROM mailed_link WHERE account_id = $1 OR expires_at < clock_timestamp() - interval '1 day';

-- name: ReplacePasswordHash :exec
UPDATE account SET password_hash = sqlc.arg(new_hash), updated_at = clock_timestamp()
    WHERE account_id = sqlc.arg(account_id);

-- name: TakeOverAccount :one
-- The former holder's identities, second factor and recovery codes do not serve the new holder.
WITH identities AS (DELETE FROM account_identity AS i WHERE i.account_id = sqlc.arg(account_id)),
factor AS (DELETE FROM second_factor AS f WHERE f.account_id = sqlc.arg(account_id)),
codes AS (DELETE FROM recovery_code AS c WHERE c.account_id = sqlc.arg(account_id))
UPDATE account AS a
SET name = sqlc.arg(name), password_hash = sqlc.arg(password_hash), second_factor_at = NULL, recovery_codes_at = NULL,
    version = a.version + 1, updated_at = clock_timestamp()
WHERE a.account_id = sqlc.arg(account_id)
RETURNING *;
