-- name: AccountOfIdentity :one
SELECT sqlc.embed(a) FROM account_identity AS i
JOIN account AS a ON a.account_id = i.account_id
WHERE i.issuer = sqlc.arg(issuer) AND i.subject = sqlc.arg(subject);

-- name: CreateIdentity :exec
INSERT INTO account_identity (account_id, issuer, subject, email, last_used_at)
VALUES (sqlc.arg(account_id), sqlc.arg(issuer), sqlc.arg(subject), sqlc.arg(email), sqlc.narg(last_used_at));

-- name: IdentityUsed :exec
UPDATE account_identity
SET email = sqlc.arg(email), last_used_at = date_trunc('minute', clock_timestamp())
WHERE issuer = sqlc.arg(issuer) AND subject = sqlc.arg(subject)
    AND (email <> sqlc.arg(email) OR last_used_at IS DISTINCT FROM date_trunc('minute', clock_timestamp()));

-- name: Identities :many
SELECT * FROM account_identity WHERE account_id = $1 ORDER BY identity_id;

-- name: DeleteIdentity :execrows
DELETE FROM account_identity WHERE account_id = $1 AND identity_id = $2;

-- name: HasIdentityOf :one
SELECT EXISTS (
    SELECT FROM account_identity WHERE account_id = sqlc.arg(account_id) AND issuer = ANY (sqlc.arg(issuers)::text[])
);

-- name: LockAccount :one
SELECT * FROM account WHERE account_id = $1 FOR NO KEY UPDATE;

-- name: GrantAdmin :exec
UPDATE account
SET is_platform_admin = sqlc.arg(is_platform_admin), admin_by = sqlc.arg(admin_by), version = version + 1,
    updated_at = clock_timestamp()
WHERE account_id = sqlc.arg(account_id);

-- name: UseSignIn :exec
INSERT INTO used_sign_in (flow_digest, expires_at) VALUES ($1, $2);

-- name: ForgetUsedSignIns :exec
-- A few at a time, so that no sign-in waits for many.
DELETE FROM used_sign_in WHERE flow_digest IN (
    SELECT u.flow_digest FROM used_sign_in AS u WHERE u.expires_at < clock_timestamp() ORDER BY u.expires_at
        LIMIT 10 FOR UPDATE SKIP LOCKED
);
