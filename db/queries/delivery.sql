-- name: AlertDeliveriesBefore :many
-- With the state of the message that carries a delivery; '' if none does, or if it is no longer kept.
SELECT sqlc.embed(d), coalesce(m.state, '')::text AS mail_state, coalesce(m.error, '')::text AS mail_error
FROM delivery AS d
LEFT JOIN mail AS m ON m.tenant_id = d.tenant_id AND m.mail_id = d.mail_id
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
