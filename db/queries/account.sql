-- name: CreateAccount :one
INSERT INTO account (email, name, is_platform_admin, password_hash)
VALUES ($1, $2, $3, $4)
RETURNING *;

-- name: Account :one
SELECT * FROM account WHERE account_id = $1;

-- name: AddressOf :one
SELECT email FROM account WHERE account_id = $1;

-- name: AccountByEmail :one
SELECT * FROM account WHERE lower(email) = lower(sqlc.arg(email)::text COLLATE "C");

-- name: AccountsAfter :many
SELECT * FROM account
WHERE lower(email) > lower(sqlc.arg(after)::text COLLATE "C")
    AND (position(lower(sqlc.arg(text)::text COLLATE "C") IN lower(email)) > 0
        OR position(lower(sqlc.arg(text)::text) IN lower(name)) > 0)
ORDER BY lower(email)
LIMIT sqlc.arg(page_size);

-- name: UpdateAccount :one
-- No row if the account has another version.
UPDATE account
SET name = sqlc.arg(name),
    is_platform_admin = sqlc.arg(is_platform_admin),
    disabled_at = CASE WHEN sqlc.arg(disabled)::boolean THEN coalesce(disabled_at, clock_timestamp()) END,
    version = version + 1,
    updated_at = clock_timestamp()
WHERE account_id = sqlc.arg(account_id) AND version = sqlc.arg(version)
RETURNING *;

-- name: LockPlatformAdmins :many
-- Platform admins who can sign in, locked, so that of two who remove each other the second sees who is left.
SELECT account_id FROM account
WHERE is_platform_admin AND disabled_at IS NULL
ORDER BY account_id
FOR NO KEY UPDATE;

-- name: SetPasswordHash :execrows
-- No row if the account has another hash than the one to replace.
UPDATE account
SET password_hash = sqlc.arg(new_hash), updated_at = clock_timestamp()
WHERE account_id = sqlc.arg(account_id) AND password_hash = sqlc.arg(old_hash);
