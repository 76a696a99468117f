-- name: CreateSession :one
-- No row if the account was disabled, got another password, or got a second factor that was not asked for. The lock
-- makes these changes wait, and end this session too.
INSERT INTO session (account_id, token_digest, user_agent, ip, second_factor, provider)
SELECT a.account_id, sqlc.arg(token_digest), sqlc.arg(user_agent), sqlc.narg(ip), sqlc.arg(second_factor),
    sqlc.arg(provider)
FROM account AS a
WHERE a.account_id = sqlc.arg(account_id) AND a.password_hash = sqlc.arg(password_hash) AND a.disabled_at IS NULL
    AND (a.second_factor_at IS NULL OR sqlc.arg(second_factor)::boolean)
FOR SHARE OF a
RETURNING *;

-- name: SessionByToken :one
SELECT sqlc.embed(s), sqlc.embed(a), s.last_seen_at < clock_timestamp() - interval '1 minute' AS to_be_noted
FROM session AS s
JOIN account AS a ON a.account_id = s.account_id
WHERE s.token_digest = sqlc.arg(token_digest)
    AND s.last_seen_at > sqlc.arg(seen_since) AND s.created_at > sqlc.arg(created_since)
    AND a.disabled_at IS NULL AND (a.second_factor_at IS NULL OR s.second_factor);

-- name: NoteSessionSeen :exec
-- At most once a minute, without waiting for another request.
UPDATE session SET last_seen_at = clock_timestamp()
WHERE session_id = (
    SELECT s.session_id FROM session AS s
    WHERE s.session_id = $1 AND s.last_seen_at < clock_timestamp() - interval '1 minute'
    FOR UPDATE SKIP LOCKED
);

-- name: Sessions :many
SELECT * FROM session
WHERE account_id = sqlc.arg(account_id)
    AND last_seen_at > sqlc.arg(seen_since) AND created_at > sqlc.arg(created_since)
ORDER BY session_id DESC;

-- name: EndSession :execrows
DELETE FROM session WHERE account_id = $1 AND session_id = $2;

-- name: EndSessionByToken :exec
DELETE FROM session WHERE token_digest = $1;

-- name: EndSessions :execrows
WITH pending AS (DELETE FROM pending_sign_in AS p WHERE p.account_id = $1)
DELETE FROM session AS s WHERE s.account_id = $1;

-- name: ConfirmSession :exec
UPDATE session SET confirmed_at = clock_timestamp() WHERE session_id = $1;

-- name: EndStaleSessions :exec
DELETE FROM session AS stale
WHERE stale.account_id = sqlc.arg(account_id) AND (
    stale.last_seen_at <= sqlc.arg(seen_since) OR stale.created_at <= sqlc.arg(created_since)
    OR stale.session_id <= (
        SELECT s.session_id FROM session AS s
        WHERE s.account_id = sqlc.arg(account_id)
        ORDER BY s.session_id DESC
        OFFSET sqlc.arg(most) LIMIT 1
    )
);
