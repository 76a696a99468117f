-- name: NewerSteps :batchmany
-- Ended steps tell processes since when the rule's own limit holds again.
SELECT * FROM rate_limit_step
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (revision, rule_id) > (sqlc.arg(after_revision)::bigint, sqlc.arg(after_rule_id)::bigint)
ORDER BY revision, rule_id
LIMIT sqlc.arg(page_size);

-- name: StepTenant :one
-- No row, and no waiting, if somebody else is writing, if the tenant's rules do not adapt, or if the process no longer
-- leads.
UPDATE tenant SET revision = revision + 1
WHERE tenant_id = (
        SELECT t.tenant_id FROM tenant AS t
        WHERE t.tenant_id = sqlc.arg(tenant_id) AND t.removed_at IS NULL AND NOT t.fixed_rates
        FOR NO KEY UPDATE SKIP LOCKED
    )
    AND EXISTS (
        SELECT FROM leader AS l
        WHERE l.role = sqlc.arg(role) AND l.holder = sqlc.arg(holder) AND l.ends_at > clock_timestamp()
    )
RETURNING revision;

-- name: PutStep :batchexec
-- The step comes into force after everything that the rule's buckets may have seen: after its end each version of the
-- rule counts as a microsecond later than the one before.
INSERT INTO rate_limit_step AS s (tenant_id, rule_id, percent, stepped_at, in_force_since, ends_at, cause, memory,
    revision)
SELECT r.tenant_id, r.rule_id, sqlc.arg(percent), sqlc.arg(stepped_at), moment_after(ARRAY[r.in_force_since]),
    moment_after(ARRAY[r.in_force_since]) + make_interval(secs => sqlc.arg(holds_seconds)::double precision),
    sqlc.arg(cause), sqlc.arg(memory), sqlc.arg(revision)
FROM rate_limit_rule AS r
WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id = sqlc.arg(rule_id) AND r.removed_at IS NULL
    AND r.parameters ? 'adapt'
ON CONFLICT (tenant_id, rule_id) DO UPDATE
SET percent = excluded.percent,
    stepped_at = excluded.stepped_at,
    in_force_since = moment_after(ARRAY[excluded.in_force_since, s.in_force_since, (
        SELECT s.ends_at + r.version * interval '1 microsecond' FROM rate_limit_rule AS r
        WHERE r.tenant_id = s.tenant_id AND r.rule_id = s.rule_id AND s.ends_at <= clock_timestamp()
    )]),
    ends_at = excluded.ends_at,
    cause = excluded.cause,
    memory = excluded.memory,
    revision = excluded.revision;

-- name: EndSteps :exec
UPDATE rate_limit_step
SET ends_at = moment_after(ARRAY[in_force_since]), revision = sqlc.arg(revision)
WHERE tenant_id = sqlc.arg(tenant_id) AND ends_at > clock_timestamp();

-- name: Steps :many
SELECT * FROM rate_limit_step WHERE tenant_id = sqlc.arg(tenant_id) AND ends_at > clock_timestamp() ORDER BY rule_id;

-- name: BackendReportsOfTenant :many
SELECT * FROM backend_report
WHERE tenant_id = sqlc.arg(tenant_id) AND slice > clock_timestamp() - interval '1 minute'
ORDER BY backend, slice;
