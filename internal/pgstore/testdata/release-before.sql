-- The statements of the release before on tables that have other names now, by the name of their query.

-- name: AssignUsers
INSERT INTO tenant_user (tenant_id, user_id, plan, revision)
SELECT $1::bigint, unnest($2::text[]), unnest($3::text[]), $4::bigint
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET plan = excluded.plan, revision = excluded.revision, removed_at = NULL, updated_at = clock_timestamp()
WHERE tenant_user.plan <> excluded.plan OR tenant_user.removed_at IS NOT NULL

-- name: Assignment
SELECT tenant_id, user_id, plan, revision, removed_at, created_at, updated_at FROM tenant_user WHERE tenant_id = $1 AND user_id = $2 AND removed_at IS NULL

-- name: AssignmentsAfter
SELECT tenant_id, user_id, plan, revision, removed_at, created_at, updated_at FROM tenant_user
WHERE tenant_id = $1 AND user_id > $2 AND removed_at IS NULL
    AND starts_with(user_id, $3::text)
    AND ($4::text = '' OR plan = $4::text)
ORDER BY user_id
LIMIT $5

-- name: UnassignUsers
UPDATE tenant_user
SET removed_at = clock_timestamp(), revision = $1, updated_at = clock_timestamp()
WHERE tenant_id = $2 AND user_id = ANY ($3::text[]) AND removed_at IS NULL

-- name: Attempt
INSERT INTO login_failure AS f (subject, network, failures, last_at)
VALUES ($1, $2, 1, clock_timestamp())
ON CONFLICT (subject, network) DO UPDATE
SET failures = CASE
        WHEN f.last_at <= clock_timestamp() - make_interval(secs => $3::double precision) THEN 1
        ELSE least(f.failures, 1000000) + 1
    END,
    last_at = clock_timestamp()
WHERE f.last_at > clock_timestamp() + interval '1 minute'
    OR f.last_at <= clock_timestamp() - make_interval(
        secs => ($4::double precision[])[least(f.failures + 1, cardinality($4::double precision[]))])
RETURNING failures

-- name: ForgetAttempts
DELETE FROM login_failure
WHERE (subject, network) IN (
    SELECT f.subject, f.network FROM login_failure AS f
    WHERE f.subject = $1
    ORDER BY f.network
    FOR UPDATE
)

-- name: ForgetOldAttempts
DELETE FROM login_failure
WHERE (subject, network) IN (
    SELECT f.subject, f.network FROM login_failure AS f
    WHERE f.last_at <= clock_timestamp() - make_interval(secs => $1::double precision)
    ORDER BY f.last_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
) OR (subject, network) IN (
    SELECT f.subject, f.network FROM login_failure AS f
    WHERE f.failures < 5 AND f.last_at <= clock_timestamp() - interval '1 hour'
    ORDER BY f.last_at
    LIMIT 10
    FOR UPDATE SKIP LOCKED
)

-- name: SecondsToWait
SELECT cast(
    extract(epoch FROM last_at - clock_timestamp())
    + ($1::double precision[])[least(failures + 1, cardinality($1::double precision[]))]
    AS double precision) AS seconds
FROM login_failure
WHERE subject = $2 AND network = $3

-- name: AlertDeliveriesBefore
SELECT tenant_id, delivery_id, alert_id, subject, denied, since, raised_at, state, attempts, next_attempt_at, attempted_at, status, error, is_test, lease_ends_at FROM alert_delivery
WHERE tenant_id = $1 AND delivery_id < $2
    AND ($3::bigint = 0 OR alert_id = $3::bigint)
ORDER BY delivery_id DESC
LIMIT $4

-- name: AlertDelivery
SELECT tenant_id, delivery_id, alert_id, subject, denied, since, raised_at, state, attempts, next_attempt_at, attempted_at, status, error, is_test, lease_ends_at FROM alert_delivery
WHERE tenant_id = $1 AND alert_id = $2 AND delivery_id = $3

-- name: FinishAlertDelivery
UPDATE alert_delivery
SET state = $1, attempted_at = $2::timestamptz, next_attempt_at = $3,
    lease_ends_at = NULL, status = nullif($4::integer, 0), error = $5
WHERE tenant_id = $6 AND delivery_id = $7 AND attempts = $8

-- name: RetryAlertDelivery
UPDATE alert_delivery SET state = 'pending', next_attempt_at = now()
WHERE tenant_id = $1 AND alert_id = $2 AND delivery_id = $3
    AND state <> 'delivered' AND (lease_ends_at IS NULL OR lease_ends_at <= now())
RETURNING tenant_id, delivery_id, alert_id, subject, denied, since, raised_at, state, attempts, next_attempt_at, attempted_at, status, error, is_test, lease_ends_at

-- name: TestAlert
INSERT INTO alert_delivery (tenant_id, alert_id, subject, denied, since, raised_at, next_attempt_at, is_test)
SELECT a.tenant_id, a.alert_id, '', a.threshold, now() - make_interval(mins => a.window_minutes), now(), now(), true
FROM alert AS a
WHERE a.tenant_id = $1 AND a.alert_id = $2 AND NOT EXISTS (
    SELECT FROM alert_delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND d.is_test AND d.state = 'pending'
)
RETURNING tenant_id, delivery_id, alert_id, subject, denied, since, raised_at, state, attempts, next_attempt_at, attempted_at, status, error, is_test, lease_ends_at

-- name: ClaimAlertDeliveries
WITH RECURSIVE waiting AS ( -- the tenants that have pending deliveries: one probe of the index each
    (SELECT d.tenant_id FROM alert_delivery AS d WHERE d.state = 'pending' ORDER BY d.tenant_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT d.tenant_id FROM alert_delivery AS d
        WHERE d.state = 'pending' AND d.tenant_id > w.tenant_id
        ORDER BY d.tenant_id LIMIT 1
    )
    FROM waiting AS w WHERE w.tenant_id IS NOT NULL
), due AS MATERIALIZED (
    SELECT one.tenant_id, one.delivery_id, one.next_attempt_at,
        busy.attempts + row_number() OVER (PARTITION BY one.tenant_id ORDER BY one.is_test DESC, one.next_attempt_at) AS turn
    FROM waiting AS w
    CROSS JOIN LATERAL (
        SELECT count(*) AS attempts FROM alert_delivery AS d
        WHERE d.tenant_id = w.tenant_id AND d.state = 'pending' AND d.lease_ends_at > $3::timestamptz
            AND d.next_attempt_at > $3 AND d.next_attempt_at <= $1
    ) AS busy
    CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.delivery_id, d.is_test, d.next_attempt_at FROM alert_delivery AS d
        WHERE d.tenant_id = w.tenant_id AND d.state = 'pending' AND d.next_attempt_at <= $3
        ORDER BY d.is_test DESC, d.next_attempt_at
        LIMIT greatest(0, $4::bigint - busy.attempts)
        FOR UPDATE SKIP LOCKED
    ) AS one
)
UPDATE alert_delivery AS d
SET attempts = d.attempts + 1, next_attempt_at = $1, lease_ends_at = $1
FROM alert AS a, tenant AS t
WHERE (d.tenant_id, d.delivery_id) IN (
        SELECT due.tenant_id, due.delivery_id FROM due
        ORDER BY due.turn, due.next_attempt_at
        LIMIT $2
    )
    AND a.tenant_id = d.tenant_id AND a.alert_id = d.alert_id AND t.tenant_id = d.tenant_id
RETURNING d.tenant_id, d.delivery_id, d.alert_id, d.subject, d.denied, d.since, d.raised_at, d.state, d.attempts, d.next_attempt_at, d.attempted_at, d.status, d.error, d.is_test, d.lease_ends_at, a.tenant_id, a.alert_id, a.name, a.rule_id, a.per_subject, a.threshold, a.window_minutes, a.url, a.secret, a.is_active, a.version, a.created_at, a.updated_at, t.slug

-- name: DropAlertDeliveries
DELETE FROM alert_delivery
WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM alert_delivery AS d
    WHERE d.raised_at < $1 AND d.state <> 'pending' LIMIT $2::integer
))

-- name: RaiseAlerts
WITH waiting AS MATERIALIZED (
    SELECT alert_id, count(*) AS deliveries FROM alert_delivery
    WHERE tenant_id = $3 AND state = 'pending'
    GROUP BY alert_id
)
INSERT INTO alert_delivery (tenant_id, alert_id, subject, denied, since, raised_at, next_attempt_at)
SELECT a.tenant_id, a.alert_id, reached.subject, reached.denied, reached.since, $1, $1
FROM alert AS a
CROSS JOIN LATERAL (
    SELECT $1::timestamptz - make_interval(mins => a.window_minutes) AS after,
        $1::timestamptz - interval '1 minute' AS before_last,
        coalesce((SELECT waiting.deliveries FROM waiting WHERE waiting.alert_id = a.alert_id), 0) AS pending
) AS w
CROSS JOIN LATERAL (
    SELECT s.subject, greatest(s.running, s.complete)::bigint AS denied, s.since
    FROM (
        SELECT CASE WHEN a.per_subject THEN m.subject ELSE '' END AS subject, min(m.minute)::timestamptz AS since,
            sum(m.denied) FILTER (WHERE m.minute > w.after) AS running,
            sum(m.denied) FILTER (WHERE m.minute <= w.before_last) AS complete
        FROM violation_minute AS m
        WHERE m.tenant_id = a.tenant_id AND m.rule_id = a.rule_id AND NOT (a.per_subject AND m.other)
            AND m.minute > w.after - interval '1 minute' AND m.minute <= $1::timestamptz
        GROUP BY 1
    ) AS s
    WHERE (s.running >= a.threshold OR s.complete >= a.threshold) AND NOT EXISTS (
        SELECT FROM alert_delivery AS d
        WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND d.subject = s.subject AND NOT d.is_test
            AND d.raised_at > w.after - interval '1 minute'
    )
    ORDER BY denied DESC, s.subject
    LIMIT greatest(0, $2::bigint - w.pending)
) AS reached
WHERE a.tenant_id = $3 AND a.is_active

-- name: NewerAssignments
SELECT tenant_id, user_id, plan, revision, removed_at, created_at, updated_at FROM tenant_user
WHERE tenant_id = $1
    AND (revision, user_id) > ($2::bigint, $3::text)
    AND (removed_at IS NULL OR $4::boolean)
ORDER BY revision, user_id
LIMIT $5

-- name: ViolationsCounted
INSERT INTO violation_minute AS m (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
SELECT c.tenant_id, least(c.minute, date_trunc('minute', now() + interval '5 minutes', 'UTC')), c.rule_id, c.subject, c.other,
    sum(c.denied), sum(c.detail_dropped)
FROM (
    SELECT unnest($1::bigint[]) AS tenant_id, unnest($2::timestamptz[]) AS minute, unnest($3::bigint[]) AS rule_id,
        unnest($4::text[]) COLLATE "C" AS subject, unnest($5::boolean[]) AS other,
        unnest($6::bigint[]) AS denied, unnest($7::bigint[]) AS detail_dropped
) AS c
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant_id, minute, rule_id, subject, other) DO UPDATE
SET denied = m.denied + excluded.denied, detail_dropped = m.detail_dropped + excluded.detail_dropped

-- name: DeniedInMinute
SELECT denied FROM violation_minute
WHERE tenant_id = $1 AND minute = $2 AND rule_id = $3 AND subject = $4 AND NOT other

-- name: DropViolationMinutes
DELETE FROM violation_minute
WHERE ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM tenant
    CROSS JOIN LATERAL (
        SELECT m.ctid FROM violation_minute AS m
        WHERE m.tenant_id = tenant.tenant_id AND m.minute < $1 LIMIT $2::integer
    ) AS old
    LIMIT $2::integer
))
