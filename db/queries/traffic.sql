-- name: TrafficBlocks :many
SELECT * FROM traffic_block
WHERE tenant_id = sqlc.arg(tenant_id) AND day = sqlc.arg(day)
    AND first_at < sqlc.arg(until) AND last_at >= sqlc.arg(since)
        AND stratum BETWEEN sqlc.arg(least_stratum) AND sqlc.arg(most_stratum)
    AND (first_at, writer, number) > (sqlc.arg(after_at)::timestamptz, sqlc.arg(after_writer)::text,
        sqlc.arg(after_number)::bigint)
ORDER BY first_at, writer, number
LIMIT sqlc.arg(page_size);

-- name: TrafficSummary :many
SELECT stratum, count(*) AS blocks, max(level)::smallint AS level, sum(checks)::bigint AS checks,
    sum(seen)::bigint AS seen,
    sum(left_out)::bigint AS left_out, sum(dropped)::bigint AS dropped,
    min(first_at)::timestamptz AS first_at, max(last_at)::timestamptz AS last_at
FROM traffic_block
WHERE tenant_id = sqlc.arg(tenant_id) AND day BETWEEN sqlc.arg(first_day) AND sqlc.arg(last_day)
    AND first_at < sqlc.arg(until) AND last_at >= sqlc.arg(since)
GROUP BY stratum
ORDER BY stratum;

-- name: LatestTraffic :one
-- Reads back until a number of checks, of checks seen, or of blocks; no row if all have fewer. Strata are filtered
-- after the limit on blocks, since a stratum without blocks would make the query read all.
SELECT summed.first_at FROM (
    SELECT newest.first_at, row_number() OVER newest_first AS looked_at, sum(newest.checks) OVER newest_first AS so_far,
        sum(newest.seen) OVER newest_first AS seen_so_far
    FROM (
        SELECT day, first_at, writer, number, seen,
            CASE WHEN stratum BETWEEN sqlc.arg(least_stratum) AND sqlc.arg(most_stratum) THEN checks
                ELSE 0 END AS checks
        FROM traffic_block
        WHERE tenant_id = sqlc.arg(tenant_id) AND day BETWEEN sqlc.arg(first_day) AND sqlc.arg(last_day)
            AND first_at >= sqlc.arg(begun)::timestamptz AND first_at < sqlc.arg(until) AND last_at >= sqlc.arg(since)
        ORDER BY day DESC, first_at DESC, writer DESC, number DESC
        LIMIT sqlc.arg(at_most)::bigint
    ) AS newest
    WINDOW newest_first AS (ORDER BY newest.day DESC, newest.first_at DESC, newest.writer DESC, newest.number DESC)
) AS summed
WHERE summed.so_far >= sqlc.arg(checks)::bigint OR summed.seen_so_far >= sqlc.arg(seen)::bigint
    OR summed.looked_at = sqlc.arg(at_most)::bigint
ORDER BY summed.looked_at
LIMIT 1;

-- name: TrafficPlacesOfUser :many
-- All users of each block of the time are read, which takes longer than anything else of an effect.
SELECT day, writer, number, first_at, last_at, checks FROM traffic_block
WHERE tenant_id = sqlc.arg(tenant_id) AND day BETWEEN sqlc.arg(first_day) AND sqlc.arg(last_day)
    AND first_at >= sqlc.arg(begun)::timestamptz AND first_at < sqlc.arg(until) AND last_at >= sqlc.arg(since)
    AND stratum BETWEEN sqlc.arg(least_stratum) AND sqlc.arg(most_stratum) AND sqlc.arg(user_id)::text = ANY (users)
ORDER BY first_at DESC, writer DESC, number DESC;

-- name: TrafficBlocksAt :many
SELECT b.* FROM (
    SELECT unnest(sqlc.arg(days)::date[]) AS day, unnest(sqlc.arg(writers)::text[]) AS writer,
        unnest(sqlc.arg(numbers)::bigint[]) AS number
) AS place
JOIN traffic_block AS b ON b.day = place.day AND b.writer = place.writer AND b.number = place.number
WHERE b.tenant_id = sqlc.arg(tenant_id)
ORDER BY b.first_at, b.writer, b.number;

-- name: TrafficDays :many
SELECT * FROM traffic_day WHERE tenant_id = sqlc.arg(tenant_id) ORDER BY day;

-- name: TrafficBlocksPiece :many
SELECT day, writer, number, sqlc.arg(user_id)::text = ANY (users) AS has_user FROM traffic_block
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (day, writer, number) > (sqlc.arg(after_day)::date, sqlc.arg(after_writer)::text,
        sqlc.arg(after_number)::bigint)
ORDER BY day, writer, number
LIMIT sqlc.arg(page_size);

-- name: TrafficBlock :one
-- Concurrent erasures of other users wait for the lock.
SELECT * FROM traffic_block
WHERE tenant_id = sqlc.arg(tenant_id) AND day = sqlc.arg(day) AND writer = sqlc.arg(writer)
    AND number = sqlc.arg(number)
FOR UPDATE;

-- name: RewriteTrafficBlock :exec
UPDATE traffic_block SET checks = sqlc.arg(checks), users = sqlc.arg(users)::text[], payload = sqlc.arg(payload)
WHERE tenant_id = sqlc.arg(tenant_id) AND day = sqlc.arg(day) AND writer = sqlc.arg(writer)
    AND number = sqlc.arg(number);

-- name: TrafficHistory :many
SELECT e.audit_id, e.at, e.object_kind, coalesce(nullif(r.image->'before', 'null'), e.before)::jsonb AS before,
    coalesce(nullif(r.image->'after', 'null'), e.after)::jsonb AS after, e.change_id
FROM audit_event AS e
CROSS JOIN LATERAL jsonb_array_elements(coalesce(e.rows, '[null]')) AS r (image)
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.at >= sqlc.arg(since)
    AND e.object_kind IN ('tenant', 'rule', 'override')
ORDER BY e.audit_id DESC
LIMIT sqlc.arg(at_most);

-- name: OpenReplays :one
SELECT count(*) FROM replay WHERE tenant_id = sqlc.arg(tenant_id) AND state IN ('waiting', 'running');

-- name: RequestReplay :one
INSERT INTO replay (tenant_id, requested_by_kind, requested_by_id, requested_by_name, request)
VALUES (sqlc.arg(tenant_id), sqlc.arg(by_kind), sqlc.arg(by_id), sqlc.arg(by_name), sqlc.arg(request))
RETURNING *;

-- name: DropEndedReplays :exec
DELETE FROM replay AS old
WHERE old.tenant_id = sqlc.arg(tenant_id) AND old.state IN ('done', 'failed', 'canceled') AND old.replay_id <= (
    SELECT latest.replay_id FROM replay AS latest
    WHERE latest.tenant_id = sqlc.arg(tenant_id) AND latest.state IN ('done', 'failed', 'canceled')
    ORDER BY latest.replay_id DESC
    OFFSET sqlc.arg(kept)::integer LIMIT 1);

-- name: Replay :one
SELECT * FROM replay WHERE tenant_id = sqlc.arg(tenant_id) AND replay_id = sqlc.arg(replay_id);

-- name: Replays :many
SELECT tenant_id, replay_id, requested_at, requested_by_kind, requested_by_id, requested_by_name,
    (request - 'file')::jsonb AS request,
    state, progress, started_at, finished_at, failure
FROM replay
WHERE tenant_id = sqlc.arg(tenant_id) AND replay_id < sqlc.arg(before)
ORDER BY replay_id DESC
LIMIT sqlc.arg(page_size);

-- name: CancelReplay :execrows
-- One that waits ends at once; one that runs ends when its process notices.
UPDATE replay
SET is_canceled = true, state = CASE state WHEN 'waiting' THEN 'canceled' ELSE state END,
    finished_at = CASE state WHEN 'waiting' THEN clock_timestamp() ELSE finished_at END
WHERE tenant_id = sqlc.arg(tenant_id) AND replay_id = sqlc.arg(replay_id) AND state IN ('waiting', 'running');

-- name: BeginReplay :one
UPDATE replay
SET state = CASE WHEN is_canceled THEN 'canceled' ELSE 'running' END,
    finished_at = CASE WHEN is_canceled THEN clock_timestamp() END,
    claim = sqlc.arg(claim), started_at = coalesce(started_at, clock_timestamp())
WHERE tenant_id = sqlc.arg(tenant_id) AND replay_id = sqlc.arg(replay_id) AND state IN ('waiting', 'running')
RETURNING *;

-- name: NoteReplay :one
-- No row if it is to begin again, or another process runs it.
UPDATE replay SET progress = sqlc.arg(progress)
WHERE tenant_id = sqlc.arg(tenant_id) AND replay_id = sqlc.arg(replay_id) AND claim = sqlc.arg(claim)
    AND state = 'running'
RETURNING is_canceled;

-- name: FinishReplay :execrows
UPDATE replay
SET state = sqlc.arg(state), failure = sqlc.arg(failure), result = sqlc.arg(result), finished_at = clock_timestamp(),
    progress = CASE WHEN sqlc.arg(state) = 'done' THEN 1 ELSE progress END
WHERE tenant_id = sqlc.arg(tenant_id) AND replay_id = sqlc.arg(replay_id) AND claim = sqlc.arg(claim)
    AND state = 'running';

-- name: RestartReplays :exec
-- Running replays may have read checks that were erased since.
UPDATE replay
SET state = CASE WHEN is_canceled THEN 'canceled' ELSE 'waiting' END,
    finished_at = CASE WHEN is_canceled THEN clock_timestamp() END, progress = 0
WHERE tenant_id = sqlc.arg(tenant_id) AND state = 'running';

-- name: EraseFromReplays :execrows
-- Deletes also those whose file, title or rules might name the user.
DELETE FROM replay
WHERE tenant_id = sqlc.arg(tenant_id) AND (
    jsonb_path_exists(request, '$.** ? (@.user_id == $erased)', jsonb_build_object('erased', sqlc.arg(user_id)::text))
    OR jsonb_path_exists(result, '$.** ? (@.user_id == $erased)', jsonb_build_object('erased', sqlc.arg(user_id)::text))
    OR strpos(request->>'file', sqlc.arg(user_id)::text) > 0
    OR strpos(request->>'title', sqlc.arg(user_id)::text) > 0
    OR EXISTS (
        SELECT FROM jsonb_path_query(result, 'strict $.**.rule') AS rule
        WHERE strpos(rule #>> '{}', sqlc.arg(user_id)::text) > 0));

-- name: OverridesSince :many
SELECT * FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id) AND removed_at IS NULL
    AND (expires_at IS NULL OR expires_at > sqlc.arg(since)::timestamptz)
ORDER BY rule_id, user_id;
