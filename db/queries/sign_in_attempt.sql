-- name: Attempt :one
-- No row if the attempt comes too soon. waits[n + 1] is the wait after n attempts, in seconds; the last element holds
-- for more. A time in the future is from before the clock stepped back, and locks nobody out.
INSERT INTO sign_in_attempt AS f (subject, network, attempts, last_at)
VALUES (sqlc.arg(subject), sqlc.arg(network), 1, clock_timestamp())
ON CONFLICT (subject, network) DO UPDATE
SET attempts = CASE
        WHEN f.last_at <= clock_timestamp() - make_interval(secs => sqlc.arg(forgotten_after)::double precision) THEN 1
        ELSE least(f.attempts, 1000000) + 1
    END,
    last_at = clock_timestamp()
WHERE f.last_at > clock_timestamp() + interval '1 minute'
    OR f.last_at <= clock_timestamp() - make_interval(
        secs => (sqlc.arg(waits)::double precision[])[least(f.attempts + 1,
            cardinality(sqlc.arg(waits)::double precision[]))])
RETURNING attempts;

-- name: SecondsToWait :one
SELECT cast(
    extract(epoch FROM last_at - clock_timestamp())
    + (sqlc.arg(waits)::double precision[])[least(attempts + 1, cardinality(sqlc.arg(waits)::double precision[]))]
    AS double precision) AS seconds
FROM sign_in_attempt
WHERE subject = sqlc.arg(subject) AND network = sqlc.arg(network);

-- name: ForgetAttempts :exec
-- Rows are locked in the order of Attempt, against deadlocks.
DELETE FROM sign_in_attempt
WHERE (subject, network) IN (
    SELECT f.subject, f.network FROM sign_in_attempt AS f
    WHERE f.subject = $1
    ORDER BY f.network
    FOR UPDATE
);

-- name: ForgetOldAttempts :exec
-- Each attempt deletes more rows than it adds. Made-up addresses stay for an hour, repeated ones for a day.
DELETE FROM sign_in_attempt
WHERE (subject, network) IN (
    SELECT f.subject, f.network FROM sign_in_attempt AS f
    WHERE f.last_at <= clock_timestamp() - make_interval(secs => sqlc.arg(forgotten_after)::double precision)
    ORDER BY f.last_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
) OR (subject, network) IN (
    SELECT f.subject, f.network FROM sign_in_attempt AS f
    WHERE f.attempts < 5 AND f.last_at <= clock_timestamp() - interval '1 hour'
    ORDER BY f.last_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
);
