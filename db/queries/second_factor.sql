-- name: SecondFactor :one
SELECT sqlc.embed(f), a.second_factor_at, (SELECT count(*) FROM recovery_code AS r WHERE r.account_id = f.account_id)
    AS recovery_codes
FROM second_factor AS f
JOIN account AS a ON a.account_id = f.account_id
WHERE f.account_id = $1;

-- name: BeginSecondFactor :execrows
-- No row if the account has a factor.
INSERT INTO second_factor AS f (account_id, secret)
SELECT a.account_id, sqlc.arg(secret) FROM account AS a
WHERE a.account_id = sqlc.arg(account_id) AND a.second_factor_at IS NULL
FOR UPDATE OF a
ON CONFLICT (account_id) DO UPDATE SET secret = excluded.secret, last_step = 0, created_at = clock_timestamp();

-- name: TurnSecondFactorOn :one
-- No row if the account has a factor already.
UPDATE account SET second_factor_at = clock_timestamp(), recovery_codes_at = clock_timestamp(), version = version + 1,
    updated_at = clock_timestamp()
WHERE account_id = $1 AND second_factor_at IS NULL
RETURNING *;

-- name: TurnSecondFactorOff :one
-- No row if the account has no factor.
UPDATE account SET second_factor_at = NULL, recovery_codes_at = NULL, version = version + 1,
    updated_at = clock_timestamp()
WHERE account_id = $1 AND second_factor_at IS NOT NULL
RETURNING *;

-- name: UseTimeStep :execrows
-- No row if the code of this step, or of a later one, was used before, or if the secret was replaced meanwhile.
UPDATE second_factor SET last_step = sqlc.arg(step), secret = sqlc.arg(sealed_again)
WHERE account_id = sqlc.arg(account_id) AND last_step < sqlc.arg(step) AND secret = sqlc.arg(secret);

-- name: DropSecondFactor :exec
DELETE FROM second_factor WHERE account_id = $1;

-- name: UseRecoveryCode :execrows
DELETE FROM recovery_code WHERE account_id = $1 AND code_digest = $2;

-- name: DropRecoveryCodes :exec
DELETE FROM recovery_code WHERE account_id = $1;

-- name: NoteRecoveryCodes :execrows
-- No row if the account has no factor.
UPDATE account SET recovery_codes_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE account_id = $1 AND second_factor_at IS NOT NULL;

-- name: CreateRecoveryCodes :exec
INSERT INTO recovery_code (account_id, code_digest)
SELECT sqlc.arg(account_id), unnest(sqlc.arg(code_digests)::bytea[]);

-- name: KeepSession :exec
WITH ended AS (DELETE FROM session AS s WHERE s.account_id = sqlc.arg(account_id)
    AND s.session_id <> sqlc.arg(session_id)),
pending AS (DELETE FROM pending_sign_in AS p WHERE p.account_id = sqlc.arg(account_id))
UPDATE session AS kept SET second_factor = true, confirmed_at = clock_timestamp()
WHERE kept.account_id = sqlc.arg(account_id) AND kept.session_id = sqlc.arg(session_id);

-- name: CreatePendingSignIn :execrows
-- No row if the account was disabled or got another password.
INSERT INTO pending_sign_in (token_digest, account_id, expires_at)
SELECT sqlc.arg(token_digest), a.account_id, sqlc.arg(expires_at)
FROM account AS a
WHERE a.account_id = sqlc.arg(account_id) AND a.password_hash = sqlc.arg(password_hash) AND a.disabled_at IS NULL
FOR SHARE OF a;

-- name: DropOldPendingSignIns :exec
DELETE FROM pending_sign_in
WHERE token_digest IN (
    SELECT p.token_digest FROM pending_sign_in AS p
    WHERE p.account_id = sqlc.arg(account_id)
    ORDER BY p.expires_at DESC
    OFFSET sqlc.arg(most)
) OR token_digest IN (
    SELECT p.token_digest FROM pending_sign_in AS p
    WHERE p.expires_at < sqlc.arg(now)
    ORDER BY p.expires_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
);

-- name: TryPendingSignIn :one
-- No row if the sign-in is over.
UPDATE pending_sign_in AS p SET attempts = p.attempts + 1
FROM account AS a
WHERE p.token_digest = sqlc.arg(token_digest) AND p.expires_at > sqlc.arg(now) AND p.attempts < sqlc.arg(most)
    AND a.account_id = p.account_id AND a.disabled_at IS NULL AND a.second_factor_at IS NOT NULL
RETURNING sqlc.embed(a), p.attempts;

-- name: DropPendingSignIn :execrows
DELETE FROM pending_sign_in WHERE token_digest = $1;
