-- name: AlertDeliveriesBefore :many
-- With the state of the message that carries a delivery; '' if none does, or if it is no longer kept.
SELECT sqlc.embed(d),
    coalesce((SELECT m.state FROM mail AS m WHERE m.tenant_id = d.tenant_id AND m.mail_id = d.mail_id), '')::text AS mail_state,
    coalesce((SELECT m.error FROM mail AS m WHERE m.tenant_id = d.tenant_id AND m.mail_id = d.mail_id), '')::text AS mail_error
FROM delivery AS d
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id < sqlc.arg(before)
    AND (sqlc.arg(alert_id)::bigint = 0 OR d.alert_id = sqlc.arg(alert_id)::bigint)
ORDER BY d.delivery_id DESC
LIMIT sqlc.arg(page_size);

-- name: DeliveryMailed :execrows
-- No row if the lease ended and another attempt began.
UPDATE delivery
SET state = 'delivered', attempted_at = sqlc.arg(attempted_at)::timestamptz, lease_ends_at = NULL, error = '', mail_id = sqlc.arg(mail_id)::bigint
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = sqlc.arg(delivery_id) AND attempts = sqlc.arg(attempt) AND state = 'pending';

-- name: FinishAlertDelivery :exec
UPDATE delivery
SET state = sqlc.arg(state), attempted_at = sqlc.arg(attempted_at)::timestamptz, next_attempt_at = sqlc.arg(next_attempt_at),
    lease_ends_at = NULL, http_status = nullif(sqlc.arg(http_status)::integer, 0), error = sqlc.arg(error)
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = sqlc.arg(delivery_id) AND attempts = sqlc.arg(attempt);

-- name: TestAlert :one
-- No row while the previous test is pending, which takes seconds, since it is attempted once.
INSERT INTO delivery (tenant_id, alert_id, subject, denied, since, raised_at, next_attempt_at, is_test)
SELECT a.tenant_id, a.alert_id, '', a.threshold, now() - make_interval(mins => a.window_minutes), now(), now(), true
FROM alert AS a
WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.alert_id = sqlc.arg(alert_id) AND NOT EXISTS (
    SELECT FROM delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND d.is_test AND d.state = 'pending'
)
RETURNING *;

-- name: AlertDelivery :one
SELECT * FROM delivery
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND delivery_id = sqlc.arg(delivery_id);

-- name: RetryAlertDelivery :one
-- No row if it was delivered or an attempt is in flight.
UPDATE delivery SET state = 'pending', next_attempt_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND delivery_id = sqlc.arg(delivery_id)
    AND state <> 'delivered' AND (lease_ends_at IS NULL OR lease_ends_at <= now())
RETURNING *;

-- name: RaiseDeliveries :execrows
-- A delivery for each firing, unless there is one of the same rule and subject that is hardly older than the alert's window. The
-- most important go first, because most_pending caps an alert's pending deliveries. Those of a silenced alert are recorded only,
-- and do not keep it from firing when the silence has ended.
WITH fired AS (
    SELECT unnest(sqlc.arg(alert_ids)::bigint[]) AS alert_id, unnest(sqlc.arg(rule_ids)::bigint[]) AS rule_id, -- 0: all checks
        unnest(sqlc.arg(subjects)::text[]) AS subject, unnest(sqlc.arg(counts)::bigint[]) AS counted,
        unnest(sqlc.arg(sinces)::timestamptz[]) AS since, unnest(sqlc.arg(raised_before)::timestamptz[]) AS raised_before,
        unnest(sqlc.arg(silenced)::boolean[]) AS silenced
), waiting AS MATERIALIZED (
    SELECT d.alert_id, count(*) AS deliveries FROM delivery AS d
    WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.state = 'pending'
    GROUP BY d.alert_id
), ranked AS (
    SELECT f.alert_id, f.rule_id, f.subject, f.counted, f.since, f.silenced,
        row_number() OVER (PARTITION BY f.alert_id ORDER BY f.counted DESC, f.rule_id, f.subject) AS place
    FROM fired AS f
    WHERE NOT EXISTS (
        SELECT FROM delivery AS d
        WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.alert_id = f.alert_id AND d.subject = f.subject AND NOT d.is_test
            AND coalesce(d.rule_id, f.rule_id) = f.rule_id AND d.raised_at > f.raised_before
            AND (f.silenced OR NOT d.silenced)
    )
)
INSERT INTO delivery (tenant_id, alert_id, rule_id, subject, denied, since, raised_at, next_attempt_at, silenced, state)
SELECT sqlc.arg(tenant_id), r.alert_id, nullif(r.rule_id, 0), r.subject, r.counted, r.since, sqlc.arg(now), sqlc.arg(now), r.silenced,
    CASE WHEN r.silenced THEN 'delivered' ELSE 'pending' END
FROM ranked AS r
WHERE r.place <= sqlc.arg(most_pending)::bigint - coalesce((SELECT w.deliveries FROM waiting AS w WHERE w.alert_id = r.alert_id), 0);

-- name: SilenceDeliveries :exec
-- What waits is not sent when the silence has ended: it is old by then. The number of attempts makes one in flight end without effect.
UPDATE delivery
SET state = 'delivered', silenced = true, attempts = attempts + 1, lease_ends_at = NULL
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND state = 'pending' AND NOT is_test;
