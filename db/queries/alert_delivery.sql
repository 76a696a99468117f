-- name: AlertDeliveriesBefore :many
SELECT * FROM alert_delivery
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id < sqlc.arg(before)
    AND (sqlc.arg(alert_id)::bigint = 0 OR alert_id = sqlc.arg(alert_id)::bigint)
ORDER BY delivery_id DESC
LIMIT sqlc.arg(page_size);

-- name: FinishAlertDelivery :exec
UPDATE alert_delivery
SET state = sqlc.arg(state), attempted_at = sqlc.arg(attempted_at)::timestamptz, next_attempt_at = sqlc.arg(next_attempt_at),
    status = nullif(sqlc.arg(status)::integer, 0), error = sqlc.arg(error)
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = sqlc.arg(delivery_id) AND attempts = sqlc.arg(attempt);
