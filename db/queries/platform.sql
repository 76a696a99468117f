-- The queries that must cross tenants. The lint test holds all other files to one tenant each.

-- name: DatabaseTime :one
SELECT clock_timestamp()::timestamptz;

-- name: ChangedTenants :many
-- A removed tenant is returned only while it is known.
SELECT tenant.*
FROM tenant
LEFT JOIN (
    SELECT unnest(sqlc.arg(known_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(known_revisions)::bigint[]) AS revision
) AS known
    ON known.tenant_id = tenant.tenant_id
WHERE (known.revision IS NULL AND tenant.removed_at IS NULL) OR tenant.revision > known.revision
ORDER BY tenant.tenant_id;

-- name: TenantDigests :many
-- A digest counts the rows and sums hashes of the transactions that wrote them, so that only a row's first column is
-- read. age is relative to the next transaction; the difference of two ages is not. Another server may reuse a
-- transaction's number.
WITH now_at AS MATERIALIZED (
    SELECT age(xid '3')::bigint AS age,
        hashint8((extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint)::bigint AS server
), part AS (
    SELECT r.tenant_id, r.revision, 1::bigint AS n,
        hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)) + (SELECT n.server FROM now_at AS n) AS sum
    FROM tenant AS r
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM plan AS r GROUP BY r.tenant_id
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM rate_limit_rule AS r GROUP BY r.tenant_id
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM rate_limit_override AS r GROUP BY r.tenant_id
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM rate_limit_step AS r GROUP BY r.tenant_id
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM plan_assignment AS r GROUP BY r.tenant_id
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM gateway AS r GROUP BY r.tenant_id
    UNION ALL
    SELECT r.tenant_id, 0, count(*), sum(hashint8(age(r.xmin) - (SELECT n.age FROM now_at AS n)))
    FROM api_key AS r GROUP BY r.tenant_id
)
SELECT p.tenant_id, sum(p.revision)::bigint AS revision, sum(p.n)::bigint AS rows, sum(p.sum)::bigint AS sum
FROM part AS p
GROUP BY p.tenant_id;

-- name: AccountByEmail :one
-- Finds the account that has proven the address or, for a slug, that tenant's unproven one.
SELECT a.* FROM account AS a
WHERE lower(a.email) = lower(sqlc.arg(email)::text COLLATE "C")
    AND (a.unproven_in IS NULL AND sqlc.arg(slug)::text = '' OR a.unproven_in = (
        SELECT t.tenant_id FROM tenant AS t WHERE t.slug = sqlc.arg(slug) AND t.removed_at IS NULL));

-- name: MembershipsAfter :many
SELECT sqlc.embed(t), m.role
FROM member AS m
JOIN tenant AS t ON t.tenant_id = m.tenant_id
WHERE m.account_id = sqlc.arg(account_id) AND t.slug > sqlc.arg(after) AND t.removed_at IS NULL
ORDER BY t.slug
LIMIT sqlc.arg(page_size);

-- name: GrantedRoles :many
-- Returns the tenants with the slugs, and those where the issuer's groups gave a role.
SELECT t.tenant_id, t.slug, coalesce(m.role, '')::text AS role, coalesce(m.granted_by, '')::text AS granted_by
FROM tenant AS t
LEFT JOIN member AS m ON m.tenant_id = t.tenant_id AND m.account_id = sqlc.arg(account_id)
WHERE t.removed_at IS NULL AND (t.slug = ANY (sqlc.arg(slugs)::text[]) OR m.granted_by = sqlc.arg(issuer)::text)
ORDER BY t.slug;

-- name: InvitationByToken :one
-- The link names no tenant.
SELECT sqlc.embed(i), sqlc.embed(t)
FROM invitation AS i
JOIN tenant AS t ON t.tenant_id = i.tenant_id
WHERE i.token_digest = sqlc.arg(token_digest)
    AND i.accepted_at IS NULL AND i.revoked_at IS NULL AND i.expires_at > clock_timestamp()
    AND t.removed_at IS NULL;

-- name: RecordKeyUses :exec
-- A use never becomes earlier.
INSERT INTO api_key_use AS u (tenant_id, key_id, last_used_at)
SELECT k.tenant_id, k.key_id, used.at
FROM (
    SELECT unnest(sqlc.arg(key_ids)::text[]) AS key_id, unnest(sqlc.arg(at)::timestamptz[]) AS at
) AS used
JOIN api_key AS k ON k.key_id = used.key_id
ORDER BY k.tenant_id, k.key_id
ON CONFLICT (tenant_id, key_id) DO UPDATE SET last_used_at = excluded.last_used_at
WHERE u.last_used_at < excluded.last_used_at;

-- The recorder writes for all tenants at once. Rows come in the order of their keys, so that processes do not deadlock.
-- A time more than 5 minutes ahead comes from a fast clock.

-- name: DecisionsCounted :exec
INSERT INTO decision_minute AS d (tenant_id, rule_id, minute, allowed, denied, bypassed, degraded, cost_taken,
    near_limit)
SELECT c.tenant_id, c.rule_id, least(c.minute, date_trunc('minute', now() + interval '5 minutes', 'UTC')),
    sum(c.allowed), sum(c.denied), sum(c.bypassed), sum(c.degraded), sum(c.taken + c.taken_parts / 1000000.0),
        sum(c.near_limit)
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(minutes)::timestamptz[]) AS minute,
        unnest(sqlc.arg(allowed)::bigint[]) AS allowed, unnest(sqlc.arg(denied)::bigint[]) AS denied,
        unnest(sqlc.arg(bypassed)::bigint[]) AS bypassed, unnest(sqlc.arg(degraded)::bigint[]) AS degraded,
        unnest(sqlc.arg(taken)::bigint[]) AS taken, unnest(sqlc.arg(taken_parts)::bigint[]) AS taken_parts,
        unnest(sqlc.arg(near_limit)::bigint[]) AS near_limit
) AS c
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
ON CONFLICT (tenant_id, rule_id, minute) DO UPDATE
SET allowed = d.allowed + excluded.allowed, denied = d.denied + excluded.denied,
    bypassed = d.bypassed + excluded.bypassed, degraded = d.degraded + excluded.degraded,
    cost_taken = d.cost_taken + excluded.cost_taken, near_limit = d.near_limit + excluded.near_limit;

-- name: DecisionsCountedBySpan :exec
INSERT INTO decision_span AS d (tenant_id, rule_id, span_minutes, starts_at, allowed, denied, bypassed, degraded,
    cost_taken)
SELECT c.tenant_id, c.rule_id, s.span_minutes,
    date_bin(make_interval(mins => s.span_minutes), least(c.minute, now() + interval '5 minutes'),
        timestamptz '1970-01-01 00:00:00Z'),
    sum(c.allowed), sum(c.denied), sum(c.bypassed), sum(c.degraded), sum(c.taken + c.taken_parts / 1000000.0)
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(minutes)::timestamptz[]) AS minute,
        unnest(sqlc.arg(allowed)::bigint[]) AS allowed, unnest(sqlc.arg(denied)::bigint[]) AS denied,
        unnest(sqlc.arg(bypassed)::bigint[]) AS bypassed, unnest(sqlc.arg(degraded)::bigint[]) AS degraded,
        unnest(sqlc.arg(taken)::bigint[]) AS taken, unnest(sqlc.arg(taken_parts)::bigint[]) AS taken_parts
) AS c
CROSS JOIN unnest(sqlc.arg(spans)::integer[]) AS s (span_minutes)
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
ON CONFLICT (tenant_id, rule_id, span_minutes, starts_at) DO UPDATE
SET allowed = d.allowed + excluded.allowed, denied = d.denied + excluded.denied,
    bypassed = d.bypassed + excluded.bypassed, degraded = d.degraded + excluded.degraded,
    cost_taken = d.cost_taken + excluded.cost_taken;

-- name: ViolationsCounted :exec
INSERT INTO violation_minute AS m (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
SELECT c.tenant_id, least(c.minute, date_trunc('minute', now() + interval '5 minutes', 'UTC')), c.rule_id, c.subject,
    c.other,
    sum(c.denied), sum(c.detail_dropped)
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(minutes)::timestamptz[]) AS minute,
        unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(subjects)::text[]) COLLATE "C" AS subject, unnest(sqlc.arg(others)::boolean[]) AS other,
        unnest(sqlc.arg(denied)::bigint[]) AS denied, unnest(sqlc.arg(detail_dropped)::bigint[]) AS detail_dropped
) AS c
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant_id, minute, rule_id, subject, other) DO UPDATE
SET denied = m.denied + excluded.denied, detail_dropped = m.detail_dropped + excluded.detail_dropped;

-- name: DenialsCounted :exec
INSERT INTO denial_count AS r (tenant_id, dimension, slot, rule_id, mode, value, other, denied)
SELECT c.tenant_id, c.dimension,
    least(c.slot, date_bin(make_interval(secs => sqlc.arg(slot_seconds)::double precision), now(),
        timestamptz '1970-01-01 00:00:00Z') + interval '5 minutes'),
    c.rule_id, c.mode, c.value, c.other, sum(c.denied)
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(dimensions)::text[]) AS dimension,
        unnest(sqlc.arg(slots)::timestamptz[]) AS slot, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(modes)::text[]) AS mode, unnest(sqlc.arg(vals)::text[]) COLLATE "C" AS value,
        unnest(sqlc.arg(others)::boolean[]) AS other, unnest(sqlc.arg(denied)::bigint[]) AS denied
) AS c
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (tenant_id, dimension, slot, rule_id, mode, value, other) DO UPDATE SET denied = r.denied + excluded.denied;

-- name: SumDenialsByMinute :execrows
-- Sums the oldest minute whose slots are not one yet.
WITH oldest AS (
    SELECT date_bin('1 minute', min(c.slot), timestamptz '1970-01-01 00:00:00Z') AS minute
    FROM denial_count AS c
    WHERE c.slot < sqlc.arg(before) AND date_bin('1 minute', c.slot, timestamptz '1970-01-01 00:00:00Z') <> c.slot
), summed AS (
    DELETE FROM denial_count AS c USING oldest AS o
    WHERE c.slot > o.minute AND c.slot < o.minute + interval '1 minute'
        AND date_bin('1 minute', c.slot, timestamptz '1970-01-01 00:00:00Z') <> c.slot
    RETURNING c.*
)
INSERT INTO denial_count AS d (tenant_id, dimension, slot, rule_id, mode, value, other, denied)
SELECT s.tenant_id, s.dimension, o.minute, s.rule_id, s.mode, s.value, s.other, sum(s.denied)
FROM summed AS s CROSS JOIN oldest AS o
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (tenant_id, dimension, slot, rule_id, mode, value, other) DO UPDATE SET denied = d.denied + excluded.denied;

-- name: CallersCounted :exec
INSERT INTO recent_check AS r (tenant_id, dimension, slot, value, checks)
SELECT c.tenant_id, c.dimension, least(c.slot, date_bin('10 seconds', now(), timestamptz '1970-01-01 00:00:00Z')
        + interval '5 minutes'), c.value,
    sum(c.checks)
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(dimensions)::text[]) AS dimension,
        unnest(sqlc.arg(slots)::timestamptz[]) AS slot, unnest(sqlc.arg(vals)::text[]) COLLATE "C" AS value,
        unnest(sqlc.arg(checks)::bigint[]) AS checks
) AS c
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
ON CONFLICT (tenant_id, dimension, slot, value) DO UPDATE SET checks = r.checks + excluded.checks;

-- name: ViolationsRecorded :exec
-- '' and 0 mean nothing, and NaN means that the bucket was not read.
INSERT INTO rate_limit_violation (
    tenant_id, requested_at, last_at, count, rule_id, bucket_key, scope, mode, reason, key_pattern, rule_version,
    rate_per_second, burst_capacity, user_id, ip_address, endpoint, method, plan, cost, tokens_at_time, retry_after_ms,
    algorithm, limit_text, meter)
SELECT v.tenant_id, least(v.requested_at, now() + interval '5 minutes'), least(v.last_at, now() + interval '5 minutes'),
    v.count, v.rule_id, v.bucket_key, v.scope, v.mode, v.reason, v.key_pattern, v.rule_version,
    v.rate_per_second, v.burst_capacity, nullif(v.user_id, ''), nullif(v.ip_address, '')::inet, nullif(v.endpoint, ''),
    nullif(v.method, ''), nullif(v.plan, ''), v.cost, nullif(v.tokens_at_time, 'NaN'), nullif(v.retry_after_ms, 0),
    v.algorithm, v.limit_text, v.meter
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id,
        unnest(sqlc.arg(requested_at)::timestamptz[]) AS requested_at,
            unnest(sqlc.arg(last_at)::timestamptz[]) AS last_at,
        unnest(sqlc.arg(counts)::bigint[]) AS count,
        unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, unnest(sqlc.arg(bucket_keys)::text[]) AS bucket_key,
        unnest(sqlc.arg(scopes)::text[]) AS scope, unnest(sqlc.arg(modes)::text[]) AS mode,
        unnest(sqlc.arg(reasons)::text[]) AS reason, unnest(sqlc.arg(key_patterns)::text[]) AS key_pattern,
        unnest(sqlc.arg(rule_versions)::bigint[]) AS rule_version,
        unnest(sqlc.arg(rates)::double precision[]) AS rate_per_second,
        unnest(sqlc.arg(bursts)::bigint[]) AS burst_capacity,
        unnest(sqlc.arg(user_ids)::text[]) AS user_id, unnest(sqlc.arg(ip_addresses)::text[]) AS ip_address,
        unnest(sqlc.arg(endpoints)::text[]) AS endpoint, unnest(sqlc.arg(methods)::text[]) AS method,
        unnest(sqlc.arg(plans)::text[]) AS plan, unnest(sqlc.arg(costs)::double precision[]) AS cost,
        unnest(sqlc.arg(tokens)::double precision[]) AS tokens_at_time,
        unnest(sqlc.arg(retry_after_ms)::bigint[]) AS retry_after_ms,
        unnest(sqlc.arg(algorithms)::text[]) AS algorithm, unnest(sqlc.arg(limit_texts)::text[]) AS limit_text,
        unnest(sqlc.arg(meters)::text[]) AS meter
) AS v;

-- name: CrossingsRecorded :exec
-- The earliest of several processes' records is kept. Checks of one batch have the same time.
INSERT INTO quota_crossing AS c (
    tenant_id, rule_id, subject, window_start, share, window_end, crossed_at, used, burst_capacity, mode, rule_name,
        key_pattern, user_id, meter)
SELECT DISTINCT ON (n.tenant_id, n.rule_id, n.subject, n.window_start, n.share)
    n.tenant_id, n.rule_id, n.subject, n.window_start, n.share, n.window_end,
    least(n.crossed_at, now() + interval '5 minutes'), n.used, n.burst_capacity, n.mode, n.rule_name, n.key_pattern,
        nullif(n.user_id, ''), n.meter
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(subjects)::text[]) COLLATE "C" AS subject,
        unnest(sqlc.arg(window_starts)::timestamptz[]) AS window_start, unnest(sqlc.arg(shares)::smallint[]) AS share,
        unnest(sqlc.arg(window_ends)::timestamptz[]) AS window_end,
            unnest(sqlc.arg(crossed_at)::timestamptz[]) AS crossed_at,
        unnest(sqlc.arg(used)::double precision[]) AS used, unnest(sqlc.arg(bursts)::bigint[]) AS burst_capacity,
        unnest(sqlc.arg(modes)::text[]) AS mode, unnest(sqlc.arg(rule_names)::text[]) AS rule_name,
        unnest(sqlc.arg(key_patterns)::text[]) AS key_pattern, unnest(sqlc.arg(user_ids)::text[]) AS user_id,
        unnest(sqlc.arg(meters)::text[]) AS meter
) AS n
ORDER BY n.tenant_id, n.rule_id, n.subject, n.window_start, n.share, n.crossed_at, n.used
ON CONFLICT (tenant_id, rule_id, subject, window_start, share) DO UPDATE
SET crossed_at = excluded.crossed_at, used = excluded.used, burst_capacity = excluded.burst_capacity,
    mode = excluded.mode
WHERE (excluded.crossed_at, excluded.used) < (c.crossed_at, c.used);

-- Rows of all tenants are deleted in pieces, so that nobody waits for long.

-- name: MakeDayPartition :one
SELECT make_day_partition(sqlc.arg(parent)::text, sqlc.arg(day)::date) AS made;

-- name: DropDayPartitions :one
SELECT drop_day_partitions(sqlc.arg(parent)::text, sqlc.arg(before)::date) AS dropped;

-- name: DaysWithoutPartition :many
SELECT days_without_partition(sqlc.arg(parent)::text, sqlc.arg(since)::date)::date AS day;

-- name: DropUserMonths :execrows
DELETE FROM user_month
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT m.ctid FROM user_month AS m
        WHERE m.tenant_id = tenant.tenant_id
            AND m.month < (date_trunc('month', sqlc.arg(before)::timestamptz, 'UTC') AT TIME ZONE 'UTC')::date
        LIMIT sqlc.arg(at_most)::integer
    ) AS old
    LIMIT sqlc.arg(at_most)::integer
));

-- name: DropMonthUsers :execrows
-- A month whose users are not all dropped yet is counted anew if it is written to.
DELETE FROM month_users
WHERE ctid = ANY (ARRAY(
    SELECT u.ctid FROM month_users AS u
    WHERE u.month < (date_trunc('month', sqlc.arg(before)::timestamptz, 'UTC') AT TIME ZONE 'UTC')::date
    LIMIT sqlc.arg(at_most)::integer
));

-- name: DropDecisionSpans :execrows
-- Whole months, like DropUserMonths: a month's usage is read from both.
DELETE FROM decision_span
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM tenant
    CROSS JOIN unnest(sqlc.arg(spans)::integer[]) AS s (span_minutes)
    CROSS JOIN LATERAL (
        SELECT d.ctid FROM decision_span AS d
        WHERE d.tenant_id = tenant.tenant_id AND d.span_minutes = s.span_minutes
            AND d.starts_at < date_trunc('month', sqlc.arg(before)::timestamptz, 'UTC')
        LIMIT sqlc.arg(at_most)::integer
    ) AS old
    LIMIT sqlc.arg(at_most)::integer
));

-- name: DropRowsBefore :one
SELECT drop_rows_before(sqlc.arg(relation)::text, sqlc.arg(at_column)::text, sqlc.arg(before)::timestamptz,
    sqlc.arg(at_most)::integer) AS dropped;

-- name: DropParkedJobs :execrows
DELETE FROM job
WHERE (tenant_id, job_id) IN (
    SELECT j.tenant_id, j.job_id FROM job AS j
    WHERE j.state = 'parked' AND j.last_run_at < sqlc.arg(before)::timestamptz
    LIMIT sqlc.arg(at_most)::integer
) AND state = 'parked'; -- somebody may have retried it meanwhile

-- name: DropExports :execrows
DELETE FROM export
WHERE ctid = ANY (ARRAY(
    SELECT e.ctid FROM export AS e WHERE e.finished_at < sqlc.arg(before)::timestamptz
    LIMIT sqlc.arg(at_most)::integer
    FOR UPDATE SKIP LOCKED));

-- name: DropInvitations :execrows
-- Deletions are logged, so their tenants are locked.
WITH old AS MATERIALIZED (
    SELECT i.tenant_id, i.invitation_id FROM invitation AS i
    WHERE least(i.expires_at, i.accepted_at, i.revoked_at) < sqlc.arg(before)::timestamptz
        LIMIT sqlc.arg(at_most)::integer
), locked AS MATERIALIZED (
    SELECT t.tenant_id FROM tenant AS t WHERE t.tenant_id IN (SELECT old.tenant_id FROM old)
    ORDER BY t.tenant_id
    FOR NO KEY UPDATE
)
DELETE FROM invitation AS i
USING old, locked
WHERE i.tenant_id = old.tenant_id AND i.invitation_id = old.invitation_id AND locked.tenant_id = old.tenant_id;

-- name: DropAuditEvents :one
SELECT drop_audit_events(sqlc.arg(before)::timestamptz, sqlc.arg(at_most)::integer) AS dropped;

-- name: ActiveAlerts :many
SELECT a.tenant_id, a.alert_id, a.version, a.kind, a.rule_id, a.per_subject, a.threshold, a.window_minutes,
    a.silenced_until, count(*) OVER (PARTITION BY a.tenant_id) AS of_tenant
FROM alert AS a
WHERE a.is_active
ORDER BY a.tenant_id, a.alert_id;

-- name: LockAlerts :exec
-- Each batch must see the deliveries of the one before. To compile the statement that judges a batch would take longer
-- than to run it.
SELECT pg_advisory_xact_lock(sqlc.arg(lock)::bigint), set_config('jit', 'off', true);

-- name: AlertCounts :many
-- Counts the newest at_most rows that an index finds for each alert. Groups below the alert's least are left out, but
-- an alert that found rows has one group at least, which says how many were looked at and back to when. In each alert
-- all branches but one end before they begin. The planner leaves out partitions before oldest.
WITH wanted AS (
    SELECT unnest(sqlc.arg(places)::integer[]) AS place, unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id,
        unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(at_mosts)::bigint[]) AS at_most,
        unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, -- 0: every rule
        unnest(sqlc.arg(per_subjects)::boolean[]) AS per_subject, unnest(sqlc.arg(leasts)::bigint[]) AS least,
        unnest(sqlc.arg(sinces)::timestamptz[]) AS since
)
SELECT w.place::integer AS place, found.looked_at::bigint AS looked_at,
    found.looked_back_to::timestamptz AS looked_back_to,
    (found.total >= w.least)::boolean AS counts, found.rule_id::bigint AS rule_id, found.subject::text AS subject,
    found.at::timestamptz AS minute, found.counted::bigint AS counted, found.checks::bigint AS checks
FROM wanted AS w
CROSS JOIN LATERAL (
    SELECT n.rule_id, n.subject, n.at, sum(n.counted) AS counted, sum(n.checks) AS checks,
        sum(sum(n.counted)) OVER (PARTITION BY n.rule_id, n.subject) AS total,
        sum(count(*)) OVER () AS looked_at, min(min(n.at)) OVER () AS looked_back_to, row_number() OVER () AS place
    FROM (
        (SELECT m.rule_id, CASE WHEN w.per_subject THEN m.subject ELSE '' END AS subject, m.minute AS at,
            m.denied AS counted, 0::bigint AS checks
        FROM violation_minute AS m
        WHERE w.kind = 'denials' AND w.rule_id > 0 AND m.tenant_id = w.tenant_id AND m.rule_id = w.rule_id
            AND NOT (w.per_subject AND m.other) AND m.minute > w.since AND m.minute > sqlc.arg(oldest)::timestamptz
            AND m.minute <= sqlc.arg(until)::timestamptz
        ORDER BY m.minute DESC LIMIT w.at_most)
        UNION ALL
        (SELECT m.rule_id, CASE WHEN w.per_subject THEN m.subject ELSE '' END, m.minute, m.denied, 0
        FROM violation_minute AS m
        WHERE w.kind = 'denials' AND w.rule_id = 0 AND m.tenant_id = w.tenant_id
            AND NOT (w.per_subject AND m.other) AND m.minute > w.since AND m.minute > sqlc.arg(oldest)::timestamptz
            AND m.minute <= sqlc.arg(until)::timestamptz
        ORDER BY m.minute DESC LIMIT w.at_most)
        UNION ALL
        (SELECT c.rule_id, CASE WHEN w.per_subject THEN c.subject ELSE '' END, date_trunc('minute', c.crossed_at), 1, 0
        FROM quota_crossing AS c
        WHERE w.kind = 'crossings' AND w.rule_id > 0 AND c.tenant_id = w.tenant_id AND c.rule_id = w.rule_id
            AND c.crossed_at > w.since AND c.crossed_at > sqlc.arg(oldest)::timestamptz
            AND c.crossed_at <= sqlc.arg(until)::timestamptz
        ORDER BY c.crossed_at DESC LIMIT w.at_most)
        UNION ALL
        (SELECT c.rule_id, CASE WHEN w.per_subject THEN c.subject ELSE '' END, date_trunc('minute', c.crossed_at), 1, 0
        FROM quota_crossing AS c
        WHERE w.kind = 'crossings' AND w.rule_id = 0 AND c.tenant_id = w.tenant_id
            AND c.crossed_at > w.since AND c.crossed_at > sqlc.arg(oldest)::timestamptz
            AND c.crossed_at <= sqlc.arg(until)::timestamptz
        ORDER BY c.crossed_at DESC LIMIT w.at_most)
        UNION ALL
        (SELECT d.rule_id, '', d.minute, CASE WHEN w.kind = 'degraded' THEN d.degraded ELSE d.near_limit + d.denied END,
            d.allowed + d.denied + d.bypassed
        FROM decision_minute AS d -- its rule 0 is all checks
        WHERE (w.kind = 'degraded' OR w.kind = 'near_limit' AND w.rule_id > 0) AND d.tenant_id = w.tenant_id
            AND d.rule_id = w.rule_id
            AND d.minute > w.since AND d.minute > sqlc.arg(oldest)::timestamptz
            AND d.minute <= sqlc.arg(until)::timestamptz
        ORDER BY d.minute DESC LIMIT w.at_most)
        UNION ALL
        (SELECT d.rule_id, '', d.minute, d.near_limit + d.denied, d.allowed + d.denied + d.bypassed
        FROM decision_minute AS d
        WHERE w.kind = 'near_limit' AND w.rule_id = 0 AND d.tenant_id = w.tenant_id AND d.rule_id > 0
            AND d.minute > w.since AND d.minute > sqlc.arg(oldest)::timestamptz
            AND d.minute <= sqlc.arg(until)::timestamptz
        ORDER BY d.minute DESC LIMIT w.at_most)
    ) AS n
    GROUP BY n.rule_id, n.subject, n.at
) AS found
WHERE found.total >= w.least OR found.place = 1
ORDER BY 1, 5, 6, 7
LIMIT sqlc.arg(most_rows)::bigint;

-- name: RaiseDeliveries :one
-- Raises a delivery and its job for each firing, unless an equal one is hardly older than the alert's window. The most
-- important go first, and a tenant's alerts take turns, because pending deliveries are capped. Deliveries of a silenced
-- alert are only recorded. An alert that was changed since it was judged is left to the next pass.
WITH fired AS (
    -- rule 0: all checks
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(alert_ids)::bigint[]) AS alert_id,
        unnest(sqlc.arg(versions)::bigint[]) AS version, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(subjects)::text[]) AS subject, unnest(sqlc.arg(counts)::bigint[]) AS counted,
        unnest(sqlc.arg(sinces)::timestamptz[]) AS since,
        unnest(sqlc.arg(raised_before)::timestamptz[]) AS raised_before,
        unnest(sqlc.arg(silenced)::boolean[]) AS silenced
), held AS MATERIALIZED ( -- so that none is silenced before its deliveries can be seen
    SELECT a.tenant_id, a.alert_id, a.kind, a.per_subject, a.threshold, a.window_minutes FROM alert AS a
    WHERE (a.tenant_id, a.alert_id, a.version) IN (SELECT f.tenant_id, f.alert_id, f.version FROM fired AS f)
        AND a.is_active
    FOR SHARE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT t.tenant_id, d.alert_id, d.deliveries,
        (sum(d.deliveries) OVER (PARTITION BY t.tenant_id))::bigint AS of_tenant
    FROM (SELECT DISTINCT h.tenant_id FROM held AS h) AS t
    CROSS JOIN LATERAL (
        SELECT p.alert_id, count(*) AS deliveries FROM delivery AS p
        WHERE p.tenant_id = t.tenant_id AND p.state = 'pending'
        GROUP BY p.alert_id
    ) AS d
), ranked AS (
    SELECT f.*, h.kind, h.per_subject, h.threshold, h.window_minutes, coalesce(w.deliveries, 0) + row_number() OVER (
        PARTITION BY f.tenant_id, f.alert_id ORDER BY f.counted DESC, f.rule_id, f.subject) AS place
    FROM fired AS f
    JOIN held AS h ON h.tenant_id = f.tenant_id AND h.alert_id = f.alert_id
    LEFT JOIN waiting AS w ON w.tenant_id = f.tenant_id AND w.alert_id = f.alert_id
    WHERE NOT EXISTS (
        SELECT FROM delivery AS d
        WHERE d.tenant_id = f.tenant_id AND d.alert_id = f.alert_id AND d.subject = f.subject AND NOT d.is_test
            AND coalesce(d.rule_id, f.rule_id) = f.rule_id AND d.raised_at > f.raised_before AND d.kind = h.kind
            AND (f.silenced OR NOT d.silenced)
    )
), turns AS (
    SELECT r.*, count(*) FILTER (WHERE NOT r.silenced) OVER (
        PARTITION BY r.tenant_id ORDER BY r.place, r.counted DESC, r.alert_id ROWS UNBOUNDED PRECEDING) AS turn
    FROM ranked AS r
    WHERE r.place <= sqlc.arg(most_of_alert)::bigint
), raised AS (
    INSERT INTO delivery (tenant_id, alert_id, rule_id, subject, denied, since, raised_at, silenced, state, kind,
        per_subject, threshold, window_minutes, mode)
    SELECT n.tenant_id, n.alert_id, nullif(n.rule_id, 0), n.subject, n.counted, n.since, sqlc.arg(now), n.silenced,
        CASE WHEN n.silenced THEN 'delivered' ELSE 'pending' END, n.kind, n.per_subject, n.threshold, n.window_minutes,
        CASE WHEN t.enforcement = 'shadow' THEN 'shadow' ELSE coalesce(r.mode, '') END
    FROM turns AS n
    JOIN tenant AS t ON t.tenant_id = n.tenant_id
    LEFT JOIN rate_limit_rule AS r ON r.tenant_id = n.tenant_id AND r.rule_id = n.rule_id
    WHERE n.silenced OR n.turn <= sqlc.arg(most_of_tenant)::bigint - coalesce((
        SELECT max(w.of_tenant) FROM waiting AS w WHERE w.tenant_id = n.tenant_id), 0)
    RETURNING tenant_id, delivery_id, silenced
), enqueued AS (
    INSERT INTO job (tenant_id, kind, about, next_run_at)
    SELECT n.tenant_id, 'alert delivery', n.delivery_id::text, clock_timestamp() FROM raised AS n WHERE NOT n.silenced
)
SELECT count(*) FROM raised;

-- name: DropAlertDeliveries :execrows
DELETE FROM delivery
WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM delivery AS d
    WHERE d.raised_at < sqlc.arg(before) AND d.state <> 'pending' LIMIT sqlc.arg(at_most)::integer
));

-- Mail of the platform has the tenant 0.

-- name: QueueMail :one
-- No row if the tenant has as many queued or within a day as it may; 0 is no limit. Alerts are counted apart, so that
-- they do not keep people from being invited. No row either for a notice that the account got within a day.
INSERT INTO mail (tenant_id, kind, recipient, account_id, invitation_id, facts, give_up_at)
SELECT sqlc.arg(tenant_id)::bigint, sqlc.arg(kind)::text, sqlc.arg(recipient), sqlc.arg(account_id)::bigint,
    sqlc.narg(invitation_id),
    sqlc.arg(facts)::jsonb, sqlc.arg(give_up_at)
WHERE (sqlc.arg(most_queued)::bigint = 0 OR sqlc.arg(most_queued)::bigint > (
        SELECT count(*) FROM mail AS m WHERE m.tenant_id = sqlc.arg(tenant_id)::bigint AND m.state = 'queued'
            AND (m.kind = 'alert') = (sqlc.arg(kind)::text = 'alert')))
    AND (sqlc.arg(most_a_day)::bigint = 0 OR sqlc.arg(most_a_day)::bigint > (
        SELECT count(*) FROM mail AS m
        WHERE m.tenant_id = sqlc.arg(tenant_id)::bigint AND m.created_at > now() - interval '1 day'
            AND (m.kind = 'alert') = (sqlc.arg(kind)::text = 'alert')))
    AND (sqlc.arg(kind)::text <> 'notice' OR NOT EXISTS (
        SELECT FROM mail AS m
        WHERE m.tenant_id = sqlc.arg(tenant_id)::bigint AND m.account_id = sqlc.arg(account_id)::bigint
            AND m.kind = 'notice'
            AND m.facts = sqlc.arg(facts)::jsonb AND m.created_at > now() - interval '1 day'))
RETURNING *;

-- name: MailToSend :one
SELECT * FROM mail WHERE tenant_id = sqlc.arg(tenant_id) AND mail_id = sqlc.arg(mail_id) AND state <> 'sent';

-- name: FinishMail :exec
-- Only the job's present claim stores a failure.
UPDATE mail AS m
SET state = sqlc.arg(state)::text, attempts = m.attempts + 1, attempted_at = clock_timestamp(), error = sqlc.arg(error)
WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.mail_id = sqlc.arg(mail_id) AND m.state <> 'sent'
    AND (sqlc.arg(state)::text = 'sent' OR EXISTS (
        SELECT FROM job AS j
        WHERE j.tenant_id = m.tenant_id AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
    ));

-- name: GiveUpMail :exec
-- Has no effect if the job is no longer of the claim.
UPDATE mail AS m SET state = 'failed', error = sqlc.arg(error)
WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.mail_id = sqlc.arg(mail_id) AND m.state = 'queued'
    AND EXISTS (
        SELECT FROM job AS j
        WHERE j.tenant_id = m.tenant_id AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
    );

-- name: DropMail :exec
DELETE FROM mail WHERE tenant_id = sqlc.arg(tenant_id) AND mail_id = sqlc.arg(mail_id) AND state <> 'sent';

-- name: MailsBefore :many
-- next_run_at is null for mail without a job; 0 is no bound.
SELECT sqlc.embed(m), j.next_run_at
FROM mail AS m
LEFT JOIN job AS j ON j.tenant_id = m.tenant_id AND j.kind = 'mail' AND j.about = m.mail_id::text
WHERE sqlc.arg(before)::bigint = 0 OR m.mail_id < sqlc.arg(before)::bigint
ORDER BY m.mail_id DESC
LIMIT sqlc.arg(page_size);

-- name: DropOldMail :exec
-- Each message that is finished deletes more rows than it adds.
DELETE FROM mail
WHERE mail_id = ANY (ARRAY(
    SELECT m.mail_id FROM mail AS m
    WHERE m.created_at < now() - interval '30 days'
    ORDER BY m.created_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
));

-- Service keys have the tenant 0.

-- name: ExpiringKeys :many
-- Keys expire within 1, 7 or 14 days of the end of a day. Left out are periods that began before the key was made or
-- have a notice, and tenants that got a notice that day.
SELECT k.tenant_id, k.slug, k.tenant_name, k.key_id, k.name, k.expires_at, k.created_by_kind, k.created_by_id,
    k.created_by_name,
    due.days::integer AS days
FROM (
    SELECT a.tenant_id, t.slug::text AS slug, t.name::text AS tenant_name, a.key_id, a.name, a.expires_at, a.revoked_at,
        a.created_at,
        a.created_by_kind, a.created_by_id, a.created_by_name
    FROM api_key AS a
    JOIN tenant AS t ON t.tenant_id = a.tenant_id AND t.removed_at IS NULL
    UNION ALL
    SELECT 0, '', '', s.key_id, s.name, s.expires_at, s.revoked_at, s.created_at, s.created_by_kind, s.created_by_id,
        s.created_by_name
    FROM service_key AS s
) AS k
CROSS JOIN LATERAL (
    SELECT min(d) AS days FROM unnest(ARRAY[1, 7, 14]) AS d
    WHERE k.expires_at < sqlc.arg(day_ends)::timestamptz + make_interval(days => d)
        AND k.created_at < k.expires_at - make_interval(days => d)
) AS due
WHERE k.revoked_at IS NULL AND k.expires_at > sqlc.arg(now)::timestamptz AND due.days IS NOT NULL
    AND NOT EXISTS (
        SELECT FROM key_notice AS n
        WHERE n.tenant_id = k.tenant_id AND n.key_id = k.key_id AND n.notice = 'expires_' || due.days)
    AND NOT EXISTS (
        SELECT FROM key_notice AS n
        WHERE n.tenant_id = k.tenant_id AND n.notice <> 'creator_left'
            AND n.told_at >= sqlc.arg(day_ends)::timestamptz - interval '1 day')
ORDER BY k.tenant_id, k.expires_at, k.key_id
LIMIT sqlc.arg(at_most);

-- name: KeysLeftBehind :many
-- Creators are found by jumping from one to the next in an index, because tenants have many more keys than creators.
WITH RECURSIVE creator AS (
    (
        SELECT a.tenant_id, a.created_by_id FROM api_key AS a
        WHERE a.revoked_at IS NULL AND a.kept_at IS NULL AND a.created_by_kind = 'account'
        ORDER BY a.tenant_id, a.created_by_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.tenant_id, following.created_by_id
    FROM creator AS c
    CROSS JOIN LATERAL (
        SELECT a.tenant_id, a.created_by_id FROM api_key AS a
        WHERE a.revoked_at IS NULL AND a.kept_at IS NULL AND a.created_by_kind = 'account'
            AND (a.tenant_id, a.created_by_id) > (c.tenant_id, c.created_by_id)
        ORDER BY a.tenant_id, a.created_by_id
        LIMIT 1
    ) AS following
), gone AS MATERIALIZED (
    SELECT c.tenant_id, c.created_by_id, t.slug::text AS slug, t.name::text AS tenant_name
    FROM creator AS c
    JOIN tenant AS t ON t.tenant_id = c.tenant_id AND t.removed_at IS NULL
    WHERE NOT EXISTS (
        SELECT FROM account AS person
        WHERE person.account_id = substring(c.created_by_id FROM '^[0-9]{1,18}$')::bigint AND person.disabled_at IS NULL
            AND (person.is_platform_admin OR EXISTS (
                SELECT FROM member AS m WHERE m.tenant_id = c.tenant_id AND m.account_id = person.account_id)))
), left_behind AS (
    SELECT a.tenant_id, g.slug, g.tenant_name, a.key_id, a.name, a.expires_at, a.created_by_id, a.created_by_name
    FROM gone AS g
    CROSS JOIN LATERAL (
        SELECT k.tenant_id, k.key_id, k.name, k.expires_at, k.created_by_id, k.created_by_name FROM api_key AS k
        WHERE k.tenant_id = g.tenant_id AND k.created_by_id = g.created_by_id
            AND k.revoked_at IS NULL AND k.kept_at IS NULL AND k.created_by_kind = 'account'
        OFFSET 0 -- or PostgreSQL may read all keys of all tenants and join them
    ) AS a
    UNION ALL
    SELECT 0, '', '', s.key_id, s.name, s.expires_at, s.created_by_id, s.created_by_name
    FROM service_key AS s
    WHERE s.revoked_at IS NULL AND s.kept_at IS NULL AND s.created_by_kind = 'account' AND NOT EXISTS (
        SELECT FROM account AS person
        WHERE person.account_id = substring(s.created_by_id FROM '^[0-9]{1,18}$')::bigint AND person.disabled_at IS NULL
            AND person.is_platform_admin)
)
SELECT k.tenant_id, k.slug, k.tenant_name, k.key_id, k.name, k.expires_at, k.created_by_id, k.created_by_name
FROM left_behind AS k
WHERE (k.expires_at IS NULL OR k.expires_at > sqlc.arg(now)::timestamptz)
    AND NOT EXISTS (
        SELECT FROM key_notice AS n WHERE n.tenant_id = k.tenant_id AND n.key_id = k.key_id
            AND n.notice = 'creator_left')
ORDER BY k.tenant_id, k.created_by_id, k.key_id
LIMIT sqlc.arg(at_most);

-- name: ForgetReturnedCreators :exec
-- A creator who is back gets a new notice on leaving again.
DELETE FROM key_notice AS n
USING api_key AS k, account AS a
WHERE n.notice = 'creator_left' AND k.tenant_id = n.tenant_id AND k.key_id = n.key_id AND k.created_by_kind = 'account'
    AND a.account_id = substring(k.created_by_id FROM '^[0-9]{1,18}$')::bigint AND a.disabled_at IS NULL
    AND (a.is_platform_admin OR EXISTS (
        SELECT FROM member AS m WHERE m.tenant_id = k.tenant_id AND m.account_id = a.account_id));

-- name: ForgetReturnedServiceCreators :exec
DELETE FROM key_notice AS n
USING service_key AS k, account AS a
WHERE n.notice = 'creator_left' AND n.tenant_id = 0 AND k.key_id = n.key_id AND k.created_by_kind = 'account'
    AND a.account_id = substring(k.created_by_id FROM '^[0-9]{1,18}$')::bigint AND a.disabled_at IS NULL
        AND a.is_platform_admin;

-- name: NoteKeyNotice :exec
INSERT INTO key_notice (tenant_id, key_id, notice, told_at)
VALUES (sqlc.arg(tenant_id), sqlc.arg(key_id), sqlc.arg(notice), sqlc.arg(told_at))
ON CONFLICT DO NOTHING;

-- name: RecipientsOfTenant :many
-- Leaves out accounts that may not sign in or have not proven their address.
SELECT a.account_id, a.email FROM member AS m
JOIN account AS a ON a.account_id = m.account_id
WHERE m.tenant_id = sqlc.arg(tenant_id) AND a.disabled_at IS NULL AND a.unproven_in IS NULL
    AND (m.role = 'owner' OR a.account_id::text = ANY (sqlc.arg(also)::text[]))
ORDER BY m.role = 'owner' DESC, a.account_id
LIMIT sqlc.arg(at_most);

-- name: RecipientsOfPlatform :many
SELECT account_id, email FROM account
WHERE is_platform_admin AND disabled_at IS NULL
ORDER BY account_id
LIMIT sqlc.arg(at_most);

-- name: ReportProcess :exec
WITH forgotten AS (
    DELETE FROM api_process WHERE reported_at < now() - interval '1 day' AND process_id <> sqlc.arg(process_id)
)
INSERT INTO api_process (
    process_id, name, version, started_at, rules_loaded, rules, rules_age_ms, database, redis,
    redis_down, checks, degraded, span_ms, algorithms
) VALUES (
    sqlc.arg(process_id), sqlc.arg(name), sqlc.arg(version), sqlc.arg(started_at), sqlc.arg(rules_loaded),
        sqlc.arg(rules),
    sqlc.arg(rules_age_ms), sqlc.arg(database), sqlc.arg(redis),
    sqlc.arg(redis_down)::text[], sqlc.arg(checks), sqlc.arg(degraded), sqlc.arg(span_ms), sqlc.arg(algorithms)::text[]
)
ON CONFLICT (process_id) DO UPDATE SET
    reported_at = now(), rules_loaded = excluded.rules_loaded, rules = excluded.rules,
        rules_age_ms = excluded.rules_age_ms,
    database = excluded.database, redis = excluded.redis, redis_down = excluded.redis_down,
    checks = excluded.checks, degraded = excluded.degraded, span_ms = excluded.span_ms;

-- name: ProcessThatKnowsNot :one
SELECT name, version FROM api_process
WHERE reported_at >= now() - make_interval(secs => sqlc.arg(within_seconds)::double precision)
    AND NOT algorithms @> ARRAY[sqlc.arg(algorithm)::text]
ORDER BY name, started_at, process_id
LIMIT 1;

-- name: EndProcess :exec
DELETE FROM api_process WHERE process_id = sqlc.arg(process_id);

-- name: Processes :many
SELECT * FROM api_process
WHERE reported_at >= now() - make_interval(secs => sqlc.arg(within_seconds)::double precision)
ORDER BY name, started_at, process_id
LIMIT 1000;

-- name: PlatformAuditPage :many
-- 0 is no bound.
SELECT * FROM platform_audit_event
WHERE sqlc.arg(before)::bigint = 0 OR audit_id < sqlc.arg(before)::bigint
ORDER BY audit_id DESC
LIMIT sqlc.arg(page_size);

-- name: NoteSessionsEnded :exec
-- No trigger writes the platform's audit log when sessions end.
INSERT INTO platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id,
    before, after)
SELECT actor->>'kind', actor->>'id', actor->>'name', actor->>'act', actor->>'request_id', 'update', 'account',
    sqlc.arg(account_id)::bigint::text,
    jsonb_build_object('sessions', sqlc.arg(ended)::bigint), jsonb_build_object('sessions', 0)
FROM audit_actor() AS actor;

-- name: Now :one
SELECT now()::timestamptz AS now;

-- name: LockTenantsOf :exec
-- Locks tenants before the account itself, as all writers do.
SELECT FROM tenant AS t
WHERE t.removed_at IS NULL AND t.tenant_id IN (
    SELECT m.tenant_id FROM member AS m
    WHERE m.account_id = sqlc.arg(account_id) AND m.role = 'owner'
    UNION ALL
    SELECT i.tenant_id FROM invitation AS i
    WHERE i.invited_by_account = sqlc.arg(account_id)::bigint AND i.accepted_at IS NULL AND i.revoked_at IS NULL
)
ORDER BY t.tenant_id
FOR NO KEY UPDATE;

-- name: RevokeInvitationsOfAccount :exec
UPDATE invitation AS i
SET revoked_at = clock_timestamp(), updated_at = clock_timestamp()
FROM account AS a
WHERE a.account_id = sqlc.arg(account_id) AND i.invited_by_account = a.account_id
    AND i.accepted_at IS NULL AND i.revoked_at IS NULL
    AND (a.disabled_at IS NOT NULL OR NOT a.is_platform_admin AND NOT EXISTS (
        SELECT FROM member AS m
        WHERE m.tenant_id = i.tenant_id AND m.account_id = a.account_id AND m.role = 'owner'
    ));

-- name: TenantsOnlyOwnedBy :many
SELECT t.slug
FROM member AS m
JOIN tenant AS t ON t.tenant_id = m.tenant_id
WHERE m.account_id = sqlc.arg(account_id) AND m.role = 'owner' AND t.removed_at IS NULL AND NOT EXISTS (
    SELECT FROM member AS o
    JOIN account AS a ON a.account_id = o.account_id
    WHERE o.tenant_id = m.tenant_id AND o.account_id <> m.account_id AND o.role = 'owner' AND a.disabled_at IS NULL
)
ORDER BY t.slug;

-- name: Lead :one
-- No row if another process leads.
INSERT INTO leader AS l (role, holder, ends_at)
VALUES (sqlc.arg(role), sqlc.arg(holder),
    clock_timestamp() + make_interval(secs => sqlc.arg(seconds)::double precision))
ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, ends_at = excluded.ends_at
WHERE l.holder = excluded.holder OR l.ends_at <= clock_timestamp()
RETURNING clock_timestamp()::timestamptz AS now;

-- name: EndLead :exec
UPDATE leader SET ends_at = clock_timestamp() WHERE role = sqlc.arg(role) AND holder = sqlc.arg(holder);

-- name: BackendsReported :exec
-- Rows come in the order of their keys, so that processes do not deadlock.
INSERT INTO backend_report AS b (tenant_id, backend, slice, requests, errors, latency)
SELECT r.tenant_id, r.backend, date_bin('5 seconds', clock_timestamp(), timestamptz '1970-01-01 00:00:00Z'), r.requests,
    r.errors,
    r.latency::bigint[]
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id,
        unnest(sqlc.arg(backends)::text[]) COLLATE "C" AS backend,
        unnest(sqlc.arg(requests)::bigint[]) AS requests, unnest(sqlc.arg(errors)::bigint[]) AS errors,
        unnest(sqlc.arg(latencies)::text[]) AS latency
) AS r
ORDER BY 1, 2
ON CONFLICT (tenant_id, backend, slice) DO UPDATE
SET requests = b.requests + excluded.requests, errors = b.errors + excluded.errors,
    latency = add_counts(b.latency, excluded.latency);

-- name: BackendReports :many
SELECT * FROM backend_report WHERE slice > sqlc.arg(after)::timestamptz ORDER BY tenant_id, backend, slice;

-- name: DropBackendReports :exec
DELETE FROM backend_report WHERE slice < sqlc.arg(before)::timestamptz;

-- name: RecentSteps :many
SELECT * FROM rate_limit_step WHERE ends_at > sqlc.arg(after)::timestamptz ORDER BY tenant_id, rule_id;

-- name: WriteAccess :exec
INSERT INTO access_event (at, access_id, tenant_id, tenant, count, kind, account_id, key_id, who, typed, ip, user_agent,
    detail, request_id)
SELECT unnest(sqlc.arg(at)::timestamptz[]), unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tenant_ids)::bigint[]),
    unnest(sqlc.arg(tenants)::text[]), unnest(sqlc.arg(counts)::bigint[]), unnest(sqlc.arg(kinds)::text[]),
    unnest(sqlc.arg(account_ids)::bigint[]), unnest(sqlc.arg(key_ids)::text[]), unnest(sqlc.arg(who)::text[]),
    unnest(sqlc.arg(typed)::text[]), nullif(unnest(sqlc.arg(ips)::text[]), '')::inet,
        unnest(sqlc.arg(user_agents)::text[]),
    unnest(sqlc.arg(details)::text[]), unnest(sqlc.arg(request_ids)::text[])
ON CONFLICT DO NOTHING;

-- name: AccessEvents :many
-- An account and a typed address select the entries of either.
SELECT * FROM access_event AS e
WHERE (e.at, e.access_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
    AND e.at >= sqlc.arg(since)::timestamptz
    AND (sqlc.arg(account_id)::bigint = 0 AND sqlc.arg(typed)::text = ''
        OR e.account_id = nullif(sqlc.arg(account_id)::bigint, 0)
        OR lower(e.typed) = nullif(lower(sqlc.arg(typed)::text COLLATE "C"), ''))
    AND (sqlc.arg(email)::text = '' OR lower(e.who) = lower(sqlc.arg(email)::text COLLATE "C")
        OR lower(e.typed) = lower(sqlc.arg(email)::text COLLATE "C"))
    AND (sqlc.arg(kind)::text = '' OR e.kind = sqlc.arg(kind)::text)
    AND (sqlc.arg(tenant)::text = '' OR e.tenant = sqlc.arg(tenant)::text)
    AND (sqlc.arg(ip)::text = '' OR e.ip = nullif(sqlc.arg(ip)::text, '')::inet)
ORDER BY e.at DESC, e.access_id DESC
LIMIT sqlc.arg(page_size);

-- name: DropAccessEvents :one
SELECT drop_access_events(sqlc.arg(before)::timestamptz, sqlc.arg(at_most)::integer) AS dropped;

-- name: WriteTrafficBlock :execrows
-- Written before, or with recording off, a block is left out.
INSERT INTO traffic_block (tenant_id, day, writer, number, first_at, last_at, stratum, level, checks, seen, left_out,
    dropped, users, payload)
SELECT t.tenant_id, sqlc.arg(day), sqlc.arg(writer), sqlc.arg(number), sqlc.arg(first_at), sqlc.arg(last_at),
    sqlc.arg(stratum),
    sqlc.arg(level), sqlc.arg(checks), sqlc.arg(seen), sqlc.arg(left_out), sqlc.arg(dropped), sqlc.arg(users)::text[],
        sqlc.arg(payload)
FROM tenant AS t
WHERE t.tenant_id = sqlc.arg(tenant_id) AND t.record_days > 0 AND t.removed_at IS NULL
ON CONFLICT (tenant_id, day, writer, number) DO NOTHING;

-- name: CountTrafficBlock :exec
INSERT INTO traffic_day AS d (tenant_id, day, blocks, bytes, checks, seen, left_out, dropped, level, first_at, last_at)
VALUES (sqlc.arg(tenant_id), sqlc.arg(day), 1, sqlc.arg(bytes), sqlc.arg(checks), sqlc.arg(seen), sqlc.arg(left_out),
    sqlc.arg(dropped),
    sqlc.arg(level), sqlc.arg(first_at), sqlc.arg(last_at))
ON CONFLICT (tenant_id, day) DO UPDATE
SET blocks = d.blocks + 1, bytes = d.bytes + excluded.bytes, checks = d.checks + excluded.checks,
    seen = d.seen + excluded.seen,
    left_out = d.left_out + excluded.left_out, dropped = d.dropped + excluded.dropped, level = excluded.level,
    first_at = least(d.first_at, excluded.first_at), last_at = greatest(d.last_at, excluded.last_at);

-- name: BeginMonthUsers :exec
INSERT INTO month_users (tenant_id, month, users)
SELECT g.tenant_id, g.month, (
    SELECT count(*) FROM (
        SELECT FROM user_month AS m WHERE m.tenant_id = g.tenant_id AND m.month = g.month AND m.user_id <> ''
            AND m.meter = ''
        LIMIT sqlc.arg(at_most)::integer
    ) AS held
)
FROM (SELECT DISTINCT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(months)::date[]) AS month)
    AS g
WHERE NOT EXISTS (SELECT FROM month_users AS u WHERE u.tenant_id = g.tenant_id AND u.month = g.month)
    AND EXISTS (SELECT FROM tenant AS t WHERE t.tenant_id = g.tenant_id AND t.record_days > 0 AND t.removed_at IS NULL)
ORDER BY g.tenant_id, g.month
ON CONFLICT (tenant_id, month) DO NOTHING;

-- name: CountUserMonths :exec
-- A month with at_most users gets no more of them. Concurrent writers wait for each other only at the month's count,
-- which is written last, so each may exceed at_most by one batch. A settlement, a row without checks, is not written
-- for a user who was erased meanwhile.
WITH given AS (
    SELECT c.tenant_id, c.month, c.user_id, c.meter, c.allowed, c.denied, c.cost + c.cost_parts / 1000000.0
        AS cost_taken
    FROM (
        SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(months)::date[]) AS month,
            unnest(sqlc.arg(user_ids)::text[]) COLLATE "C" AS user_id,
            unnest(sqlc.arg(meters)::text[]) COLLATE "C" AS meter,
            unnest(sqlc.arg(allowed)::bigint[]) AS allowed, unnest(sqlc.arg(denied)::bigint[]) AS denied,
            unnest(sqlc.arg(cost)::bigint[]) AS cost, unnest(sqlc.arg(cost_parts)::bigint[]) AS cost_parts
    ) AS c
    JOIN tenant AS t ON t.tenant_id = c.tenant_id
    WHERE t.record_days > 0 AND t.removed_at IS NULL AND (c.allowed + c.denied > 0
        OR NOT EXISTS (SELECT FROM bucket_checkpoint AS e WHERE e.tenant_id = c.tenant_id AND e.rule_id = 0
            AND e.subject = sha256(convert_to(c.user_id, 'UTF8')))
        OR EXISTS (SELECT FROM user_month AS m WHERE m.tenant_id = c.tenant_id AND m.month = c.month
            AND m.user_id = c.user_id AND m.meter = c.meter))
), written AS (
    INSERT INTO user_month AS m (tenant_id, month, user_id, meter, allowed, denied, cost_taken)
    SELECT g.tenant_id, g.month, g.user_id, g.meter, g.allowed, g.denied, g.cost_taken
    FROM given AS g
    JOIN month_users AS u ON u.tenant_id = g.tenant_id AND u.month = g.month
    WHERE g.user_id = '' OR u.users < sqlc.arg(at_most)::integer
        OR EXISTS (SELECT FROM user_month AS e WHERE e.tenant_id = g.tenant_id AND e.month = g.month
            AND e.user_id = g.user_id)
    ORDER BY g.tenant_id, g.month, g.user_id, g.meter
    ON CONFLICT (tenant_id, month, user_id, meter) DO UPDATE
    SET allowed = m.allowed + excluded.allowed, denied = m.denied + excluded.denied,
        cost_taken = m.cost_taken + excluded.cost_taken
    -- an updated row has its former version's end in xmax
    RETURNING m.tenant_id, m.month, m.user_id <> '' AND m.meter = '' AND m.xmax = 0 AS is_new
)
INSERT INTO month_users AS u (tenant_id, month, users)
SELECT w.tenant_id, w.month, count(*) FROM written AS w WHERE w.is_new
GROUP BY w.tenant_id, w.month
ORDER BY w.tenant_id, w.month
ON CONFLICT (tenant_id, month) DO UPDATE SET users = u.users + excluded.users;

-- name: TrafficUses :many
SELECT t.tenant_id, t.record_days, coalesce(sum(d.bytes), 0)::bigint AS bytes,
    coalesce(sum(d.bytes) FILTER (WHERE d.day = sqlc.arg(today)::date), 0)::bigint AS today_bytes,
    coalesce(sum(d.bytes::double precision * greatest(d.seen, d.checks) / greatest(d.checks, 1))
        FILTER (WHERE d.day = sqlc.arg(today)::date - 1), 0)::double precision AS yesterday_bytes
FROM tenant AS t
CROSS JOIN LATERAL (
    SELECT 0::bigint AS bytes, NULL::date AS day, 0::bigint AS seen, 0::bigint AS checks
    UNION ALL
    SELECT of_day.bytes, of_day.day, of_day.seen, of_day.checks FROM traffic_day AS of_day
        WHERE of_day.tenant_id = t.tenant_id
) AS d
WHERE t.tenant_id = ANY (sqlc.arg(tenant_ids)::bigint[]) AND t.removed_at IS NULL
GROUP BY t.tenant_id;

-- name: TrafficTotal :one
SELECT coalesce(sum(d.bytes), 0)::bigint AS bytes, count(DISTINCT d.tenant_id) AS tenants FROM traffic_day AS d;

-- name: DropTrafficBlocks :execrows
DELETE FROM traffic_block
WHERE (tenant_id, day, writer, number) IN (
    SELECT old.tenant_id, old.day, old.writer, old.number
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT b.tenant_id, b.day, b.writer, b.number FROM traffic_block AS b
        WHERE b.tenant_id = tenant.tenant_id
            AND b.day < CASE WHEN tenant.removed_at IS NULL AND tenant.record_days > 0
                THEN sqlc.arg(today)::date - tenant.record_days ELSE sqlc.arg(today)::date + 100 END
        LIMIT sqlc.arg(at_most)::integer
    ) AS old
    LIMIT sqlc.arg(at_most)::integer
);

-- name: DropTrafficDays :execrows
DELETE FROM traffic_day
WHERE (tenant_id, day) IN (
    SELECT old.tenant_id, old.day
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.day FROM traffic_day AS d
        WHERE d.tenant_id = tenant.tenant_id
            AND d.day < CASE WHEN tenant.removed_at IS NULL AND tenant.record_days > 0
                THEN sqlc.arg(today)::date - tenant.record_days ELSE sqlc.arg(today)::date + 100 END
        LIMIT sqlc.arg(at_most)::integer
    ) AS old
    LIMIT sqlc.arg(at_most)::integer
);

-- name: DropReplays :execrows
DELETE FROM replay
WHERE (tenant_id, replay_id) IN (
    SELECT old.tenant_id, old.replay_id
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT r.tenant_id, r.replay_id FROM replay AS r
        WHERE r.tenant_id = tenant.tenant_id
            AND (r.requested_at < sqlc.arg(before)::timestamptz OR tenant.removed_at IS NOT NULL)
        LIMIT sqlc.arg(at_most)::integer
    ) AS old
    LIMIT sqlc.arg(at_most)::integer
);

-- name: RemovedTenants :many
SELECT t.tenant_id, t.slug, t.name, t.removed_at::timestamptz AS removed_at, e.began_at, e.done_at,
    coalesce(e.rows, '{}')::jsonb AS erased
FROM tenant AS t
LEFT JOIN tenant_erasure AS e ON e.of_tenant = t.tenant_id
WHERE t.removed_at IS NOT NULL AND t.slug > sqlc.arg(after)
ORDER BY t.slug
LIMIT sqlc.arg(page_size);

-- name: RemovedTenant :one
SELECT tenant_id FROM tenant WHERE slug = $1 AND removed_at IS NOT NULL;

-- name: RestoreTenant :one
-- Processes read the tenant again by its new revision. No row if its rows are being erased.
UPDATE tenant AS t
SET removed_at = NULL, revision = t.revision + 1, version = t.version + 1, updated_at = clock_timestamp()
WHERE t.slug = sqlc.arg(slug) AND t.removed_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM tenant_erasure AS e WHERE e.of_tenant = t.tenant_id)
RETURNING *;

-- name: RemovedTenantsToErase :many
SELECT t.tenant_id FROM tenant AS t
LEFT JOIN tenant_erasure AS e ON e.of_tenant = t.tenant_id
WHERE t.removed_at < sqlc.arg(before)::timestamptz AND e.done_at IS NULL
ORDER BY t.removed_at
LIMIT 100;

-- name: EraseRemovedTenant :one
SELECT erase_removed_tenant(sqlc.arg(tenant_id)::bigint, sqlc.arg(at_most)::integer) AS done;

-- name: CapacityUses :many
-- A tenant counts from its first write. A capacity of 0 that nothing is held of does not count.
SELECT h.thing::text AS thing, count(*) FILTER (WHERE h.held < h.allowed) AS near,
    count(*) FILTER (WHERE h.held >= h.allowed) AS "full"
FROM (
    SELECT u.thing, u.held, coalesce((to_jsonb(q) ->> u.thing)::bigint, default_capacity(u.thing)) AS allowed
    FROM (
        SELECT u.tenant_id, u.thing, u.held FROM tenant_use AS u WHERE u.held > 0
        UNION ALL
        SELECT k.tenant_id, 'api_keys', count(*) FROM api_key AS k
        WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
        GROUP BY k.tenant_id
    ) AS u
    JOIN tenant AS t ON t.tenant_id = u.tenant_id AND t.removed_at IS NULL
    LEFT JOIN tenant_capacity AS q ON q.tenant_id = u.tenant_id
) AS h
WHERE h.held * 10 >= h.allowed * 9
GROUP BY h.thing;

-- name: HeldCounts :many
SELECT u.tenant_id, u.thing, (u.held <> count_held(u.tenant_id, u.thing))::boolean AS is_wrong
FROM (
    SELECT t.tenant_id, t.thing, t.held FROM tenant_use AS t
    WHERE (t.tenant_id, t.thing) > (sqlc.arg(after_tenant)::bigint, sqlc.arg(after_thing)::text)
    ORDER BY t.tenant_id, t.thing
    LIMIT sqlc.arg(page_size)
) AS u
ORDER BY u.tenant_id, u.thing;

-- name: RecountHeld :exec
SELECT recount_held(sqlc.arg(tenant_id)::bigint, sqlc.arg(thing)::text);

-- name: PutCapacity :one
-- Null is the default. No row unless the version, 0 for none, is the expected one; -1 expects any.
INSERT INTO tenant_capacity AS q (tenant_id, plans, rules, overrides, users, api_keys, alerts, members)
SELECT
    sqlc.arg(tenant_id)::bigint, sqlc.narg(plans)::bigint, sqlc.narg(rules)::bigint, sqlc.narg(overrides)::bigint,
    sqlc.narg(users)::bigint, sqlc.narg(api_keys)::bigint, sqlc.narg(alerts)::bigint, sqlc.narg(members)::bigint
WHERE sqlc.arg(expected)::bigint IN (
    -1, coalesce((SELECT t.version FROM tenant_capacity AS t WHERE t.tenant_id = sqlc.arg(tenant_id)::bigint), 0))
ON CONFLICT (tenant_id) DO UPDATE
SET plans = excluded.plans, rules = excluded.rules, overrides = excluded.overrides, users = excluded.users,
    api_keys = excluded.api_keys, alerts = excluded.alerts, members = excluded.members,
    version = q.version + 1, updated_at = clock_timestamp()
RETURNING q.version;

-- name: ExpiredRules :many
-- The oldest of each tenant come first. Rules with a candidate or a scheduled change are left out.
SELECT ended.tenant_id, ended.rule_id
FROM tenant AS t
CROSS JOIN LATERAL (
    SELECT r.tenant_id, r.rule_id FROM rate_limit_rule AS r
    WHERE r.tenant_id = t.tenant_id AND r.removed_at IS NULL AND r.expires_at < sqlc.arg(before)::timestamptz
        AND r.updated_at < sqlc.arg(before)::timestamptz
        AND NOT EXISTS (SELECT FROM rate_limit_rule AS c
            WHERE c.tenant_id = r.tenant_id AND c.candidate_for = r.rule_id AND c.removed_at IS NULL)
        AND NOT EXISTS (SELECT FROM scheduled_change_rule AS s
            JOIN scheduled_change AS c ON c.tenant_id = s.tenant_id AND c.change_id = s.change_id
            WHERE s.tenant_id = r.tenant_id AND s.rule_id = r.rule_id AND c.due_at IS NOT NULL)
    ORDER BY r.expires_at, r.rule_id
    LIMIT sqlc.arg(of_each)::integer
) AS ended
WHERE t.removed_at IS NULL
LIMIT sqlc.arg(at_most)::integer;

-- name: SecretsToSeal :many
-- Alert 0 is the audit webhook.
SELECT s.tenant_id, s.alert_id, s.secret
FROM (
    SELECT a.tenant_id, a.alert_id, a.secret FROM alert AS a
    UNION ALL
    SELECT w.tenant_id, 0, w.secret FROM audit_webhook AS w
) AS s
JOIN tenant AS t ON t.tenant_id = s.tenant_id
WHERE s.secret <> '' AND NOT starts_with(s.secret, sqlc.arg(prefix)::text) AND t.removed_at IS NULL
    AND (s.tenant_id, s.alert_id) > (sqlc.arg(after_tenant)::bigint, sqlc.arg(after_alert)::bigint)
ORDER BY s.tenant_id, s.alert_id
LIMIT sqlc.arg(page_size);

-- name: TryLock :one
-- The lock holds until the end of the transaction.
SELECT pg_try_advisory_xact_lock(sqlc.arg(lock)::bigint) AS ours;

-- name: PlanJobs :exec
INSERT INTO job AS j (tenant_id, kind, next_run_at, due_at)
SELECT 0, p.kind, clock_timestamp(), clock_timestamp()
FROM (SELECT unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(pauses)::float8[]) AS pause) AS p
ON CONFLICT (tenant_id, kind, about) DO UPDATE
    SET next_run_at = least(j.next_run_at, clock_timestamp() + make_interval(secs => (
    SELECT q.pause FROM (SELECT unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(pauses)::float8[]) AS pause)
        AS q
    WHERE q.kind = j.kind)))
    WHERE j.lease_ends_at IS NULL OR j.lease_ends_at <= clock_timestamp();

-- name: LockJobClaims :exec
-- Each claim must see the leases of the one before.
SELECT pg_advisory_xact_lock(sqlc.arg(lock)::bigint);

-- name: CountParkedJobs :one
-- Up to a thousand, because claims wait for this.
SELECT count(*) FROM (SELECT FROM job AS j WHERE j.state = 'parked' LIMIT 1000) AS parked;

-- name: ClaimJobs :many
-- Tenants take turns: each gets its first attempt before any gets its second, counting those in flight. Among equals
-- chance decides, because by age a tenant with a backlog would always come first.
WITH RECURSIVE asked AS (
    SELECT unnest(sqlc.arg(kinds)::text[]) AS kind, unnest(sqlc.arg(rooms)::bigint[]) AS room,
        unnest(sqlc.arg(caps)::bigint[]) AS cap
), moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), waiting AS ( -- the tenants that have jobs of a kind: one probe of job_due_idx each, if the order is the index's
    SELECT a.kind, (
        SELECT j.tenant_id FROM job AS j WHERE j.state = 'waiting' AND j.kind = a.kind
        ORDER BY j.tenant_id, j.next_run_at, j.job_id LIMIT 1
    ) AS tenant_id
    FROM asked AS a
    UNION ALL
    SELECT w.kind, (
        SELECT j.tenant_id FROM job AS j
        WHERE j.state = 'waiting' AND j.kind = w.kind AND j.tenant_id > w.tenant_id
        ORDER BY j.tenant_id, j.next_run_at, j.job_id LIMIT 1
    )
    FROM waiting AS w WHERE w.tenant_id IS NOT NULL
), due AS MATERIALIZED (
    SELECT one.job_id, w.kind, one.next_run_at,
        busy.attempts + row_number() OVER (PARTITION BY w.kind, w.tenant_id ORDER BY one.next_run_at, one.job_id)
            AS turn
    FROM waiting AS w
    JOIN asked AS a ON a.kind = w.kind
    CROSS JOIN moment
    LEFT JOIN tenant AS t ON t.tenant_id = w.tenant_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS attempts FROM job AS j
        WHERE j.state = 'waiting' AND j.kind = w.kind AND j.tenant_id = w.tenant_id AND j.lease_ends_at > moment.now
            AND j.next_run_at > moment.now
                AND j.next_run_at <= moment.now + make_interval(secs => sqlc.arg(lease_seconds)::float8)
    ) AS busy
    CROSS JOIN LATERAL (
        SELECT j.job_id, j.next_run_at FROM job AS j
        WHERE j.state = 'waiting' AND j.kind = w.kind AND j.tenant_id = w.tenant_id AND j.next_run_at <= moment.now
        ORDER BY j.next_run_at, j.job_id
        LIMIT greatest(0, least(a.cap - busy.attempts, a.room))
    ) AS one
    WHERE w.tenant_id = 0 OR t.removed_at IS NULL AND t.tenant_id IS NOT NULL
), chosen AS (
    SELECT d.job_id, d.kind, row_number() OVER (PARTITION BY d.kind ORDER BY d.turn, random()) AS place
    FROM due AS d
), locked AS ( -- these alone: each lock is a write
    SELECT j.job_id
    FROM job AS j
    CROSS JOIN moment
    JOIN chosen AS c ON c.job_id = j.job_id
    JOIN asked AS a ON a.kind = c.kind
    WHERE c.place <= a.room AND j.state = 'waiting' AND j.next_run_at <= moment.now
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE job AS j
SET attempts = j.attempts + 1, claim = j.claim + 1,
    next_run_at = clock_timestamp() + make_interval(secs => sqlc.arg(lease_seconds)::float8),
    lease_ends_at = clock_timestamp() + make_interval(secs => sqlc.arg(lease_seconds)::float8)
FROM locked AS l
WHERE j.job_id = l.job_id
RETURNING j.tenant_id, j.job_id, j.kind, j.about, j.attempts, j.claim;

-- name: RenewJobs :many
UPDATE job AS j
SET next_run_at = clock_timestamp() + make_interval(secs => sqlc.arg(lease_seconds)::float8),
    lease_ends_at = clock_timestamp() + make_interval(secs => sqlc.arg(lease_seconds)::float8)
FROM (SELECT unnest(sqlc.arg(job_ids)::bigint[]) AS job_id, unnest(sqlc.arg(claims)::bigint[]) AS claim) AS held
WHERE j.job_id = held.job_id AND j.claim = held.claim AND j.lease_ends_at IS NOT NULL
RETURNING j.job_id;

-- name: FinishJob :exec
-- The next attempt is at a time or, if that is null, after a pause. A periodic job that fails, or has a time because it
-- goes on, stays due.
UPDATE job
SET state = CASE WHEN sqlc.arg(is_parked)::boolean THEN 'parked' ELSE 'waiting' END,
    attempts = CASE WHEN sqlc.arg(error)::text = '' THEN 0 ELSE attempts END,
    next_run_at = greatest(clock_timestamp(), coalesce(sqlc.narg(at)::timestamptz,
        clock_timestamp() + make_interval(secs => sqlc.arg(pause)::float8))),
    due_at = CASE WHEN sqlc.arg(error)::text = '' AND sqlc.narg(at)::timestamptz IS NULL
        THEN clock_timestamp() + make_interval(secs => sqlc.arg(pause)::float8) ELSE due_at END,
    lease_ends_at = NULL, error = sqlc.arg(error)::text, last_run_at = clock_timestamp(), took_ms = sqlc.arg(took_ms)
WHERE job_id = sqlc.arg(job_id) AND claim = sqlc.arg(claim) AND lease_ends_at IS NOT NULL;

-- name: GiveJobBack :exec
-- An interrupted attempt does not count.
UPDATE job SET attempts = attempts - 1, next_run_at = clock_timestamp(), lease_ends_at = NULL
WHERE job_id = sqlc.arg(job_id) AND claim = sqlc.arg(claim) AND lease_ends_at IS NOT NULL;

-- name: DropJobAbout :exec
-- Unless it is attempted now.
DELETE FROM job
WHERE tenant_id = sqlc.arg(tenant_id) AND kind = sqlc.arg(kind) AND about = sqlc.arg(about) AND lease_ends_at IS NULL;

-- name: DropJob :exec
DELETE FROM job WHERE job_id = sqlc.arg(job_id) AND claim = sqlc.arg(claim) AND lease_ends_at IS NOT NULL;

-- name: ParkedJobs :many
-- 0 is no bound.
SELECT j.*, coalesce(t.slug, '')::text AS slug FROM job AS j LEFT JOIN tenant AS t ON t.tenant_id = j.tenant_id
WHERE j.state = 'parked' AND (sqlc.arg(before)::bigint = 0 OR j.job_id < sqlc.arg(before)::bigint)
ORDER BY j.job_id DESC
LIMIT sqlc.arg(page_size);

-- name: PeriodicJobs :many
SELECT j.*, greatest(0, extract(epoch FROM clock_timestamp() - coalesce(j.due_at, j.next_run_at)) * 1000)::bigint
    AS lag_ms
FROM job AS j
WHERE j.tenant_id = 0 AND j.about = '' AND j.state = 'waiting'
ORDER BY j.kind;

-- name: RetryJob :one
-- The audit log does not have the error, which may name people, because its entries cannot be erased.
WITH parked AS (
    SELECT j.tenant_id, j.job_id, j.kind, j.about, j.attempts FROM job AS j
    WHERE j.job_id = sqlc.arg(job_id) AND j.state = 'parked'
    FOR UPDATE
), retried AS (
    UPDATE job AS j SET state = 'waiting', attempts = 0, next_run_at = clock_timestamp()
    FROM parked AS p
    WHERE j.tenant_id = p.tenant_id AND j.job_id = p.job_id
)
INSERT INTO platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id,
    before, after)
SELECT actor->>'kind', actor->>'id', actor->>'name', actor->>'act', actor->>'request_id', 'update', 'job',
    p.job_id::text, to_jsonb(p) || '{"state": "parked"}', '{"state": "waiting"}'
FROM parked AS p, audit_actor() AS actor
RETURNING audit_id;

-- name: RemoveJob :one
WITH removed AS (
    DELETE FROM job AS j WHERE j.job_id = sqlc.arg(job_id) AND j.state = 'parked'
    RETURNING j.tenant_id, j.job_id, j.kind, j.about, j.attempts
)
INSERT INTO platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id,
    before, after)
SELECT actor->>'kind', actor->>'id', actor->>'name', actor->>'act', actor->>'request_id', 'remove', 'job',
    r.job_id::text, to_jsonb(r) || '{"state": "parked"}', NULL
FROM removed AS r, audit_actor() AS actor
RETURNING audit_id;

-- name: ShareCheckpoints :exec
-- The erasure of a user has this lock alone, so that it sees their rows or they see its mark.
SELECT pg_advisory_xact_lock_shared(hashtext('sluice checkpoints'));

-- name: WriteCheckpoints :exec
-- Nothing is written for a removed tenant, or about a user from before an erasure.
INSERT INTO bucket_checkpoint AS c (tenant_id, rule_id, subject, stamp, state, owner)
SELECT n.tenant_id, n.rule_id, n.subject, n.stamp, n.state, nullif(n.owner, '')
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(subjects)::bytea[]) AS subject, unnest(sqlc.arg(stamps)::bigint[]) AS stamp,
        unnest(sqlc.arg(states)::bytea[]) AS state, unnest(sqlc.arg(owners)::bytea[]) AS owner
) AS n
JOIN tenant AS t ON t.tenant_id = n.tenant_id
WHERE t.removed_at IS NULL AND NOT EXISTS (
    SELECT FROM bucket_checkpoint AS e
    WHERE e.tenant_id = n.tenant_id AND e.rule_id = 0 AND e.subject = n.owner AND e.stamp >= n.stamp)
ORDER BY n.tenant_id, n.rule_id, n.subject
ON CONFLICT (tenant_id, rule_id, subject) DO UPDATE
SET stamp = excluded.stamp, state = excluded.state, owner = excluded.owner
WHERE c.stamp <= excluded.stamp;

-- name: CheckpointsAfter :many
SELECT * FROM bucket_checkpoint
WHERE (tenant_id, rule_id, subject) > (sqlc.arg(tenant_id), sqlc.arg(rule_id)::bigint, sqlc.arg(subject)::bytea)
ORDER BY tenant_id, rule_id, subject
LIMIT sqlc.arg(page_size);

-- name: DropCheckpoints :execrows
DELETE FROM bucket_checkpoint AS c
USING (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(subjects)::bytea[]) AS subject, unnest(sqlc.arg(stamps)::bigint[]) AS stamp
) AS n
WHERE c.tenant_id = n.tenant_id AND c.rule_id = n.rule_id AND c.subject = n.subject AND c.stamp = n.stamp;

-- name: CheckpointsOfBuckets :many
SELECT c.*
FROM (
    SELECT unnest(sqlc.arg(tenant_ids)::bigint[]) AS tenant_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id,
        unnest(sqlc.arg(subjects)::bytea[]) AS subject
) AS n
JOIN bucket_checkpoint AS c ON c.tenant_id = n.tenant_id AND c.rule_id = n.rule_id AND c.subject = n.subject;

-- name: TenantsWithCheckpoints :many
-- Rows with the rule 0 are marks of erased users. EXISTS would make PostgreSQL read the whole table where one tenant
-- has most of it.
SELECT n.tenant_id::bigint
FROM unnest(sqlc.arg(tenant_ids)::bigint[]) AS n (tenant_id)
WHERE (SELECT true FROM bucket_checkpoint AS c WHERE c.tenant_id = n.tenant_id AND c.rule_id > 0
        ORDER BY c.rule_id, c.subject LIMIT 1)
    OR (SELECT true FROM bucket_checkpoint AS c WHERE c.tenant_id = n.tenant_id AND c.rule_id < 0
        ORDER BY c.rule_id, c.subject LIMIT 1);
