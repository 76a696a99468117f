-- name: EnqueueJob :execrows
-- at is null for now. A job that exists becomes due if it is parked or, with is_retry, if no attempt is running.
INSERT INTO job AS j (tenant_id, kind, about, next_run_at)
VALUES (sqlc.arg(tenant_id), sqlc.arg(kind), sqlc.arg(about),
    coalesce(sqlc.narg(at)::timestamptz, clock_timestamp()))
ON CONFLICT (tenant_id, kind, about) DO UPDATE
    SET state = 'waiting', attempts = 0, next_run_at = EXCLUDED.next_run_at
    WHERE j.state = 'parked'
        OR sqlc.arg(is_retry)::boolean AND (j.lease_ends_at IS NULL OR j.lease_ends_at <= clock_timestamp());

-- name: NextTry :one
-- No row during an attempt, and if it is parked or gone.
SELECT next_run_at FROM job
WHERE tenant_id = sqlc.arg(tenant_id) AND kind = sqlc.arg(kind) AND about = sqlc.arg(about) AND state = 'waiting'
    AND lease_ends_at IS NULL;

-- name: DropJobsOfKinds :exec
-- Results of running attempts are not stored then.
DELETE FROM job WHERE tenant_id = sqlc.arg(tenant_id) AND kind = ANY (sqlc.arg(kinds)::text[]);
