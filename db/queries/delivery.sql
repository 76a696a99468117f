-- name: AlertDeliveriesBefore :many
-- next_run_at is the epoch for none; the mail's state is '' if no message carries the delivery.
SELECT sqlc.embed(d),
    coalesce((SELECT j.next_run_at FROM job AS j WHERE j.tenant_id = d.tenant_id AND j.about = d.delivery_id::text
        AND j.kind = CASE WHEN d.is_test THEN 'alert test' ELSE 'alert delivery' END), timestamptz 'epoch')::timestamptz
        AS next_run_at,
    EXISTS (SELECT FROM job AS k WHERE k.tenant_id = d.tenant_id AND k.about = d.delivery_id::text
        AND k.kind = CASE WHEN d.is_test THEN 'alert test' ELSE 'alert delivery' END AND k.lease_ends_at > now())
        AS under_way,
    coalesce((SELECT m.state FROM mail AS m WHERE m.tenant_id = d.tenant_id AND m.mail_id = d.mail_id), '')::text
        AS mail_state,
    coalesce((SELECT m.error FROM mail AS m WHERE m.tenant_id = d.tenant_id AND m.mail_id = d.mail_id), '')::text
        AS mail_error
FROM delivery AS d
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id < sqlc.arg(before)
    AND (sqlc.arg(alert_id)::bigint = 0 OR d.alert_id = sqlc.arg(alert_id)::bigint)
ORDER BY d.delivery_id DESC
LIMIT sqlc.arg(page_size);

-- name: DeliveryToSend :one
-- No row if it was delivered.
SELECT sqlc.embed(d), sqlc.embed(a), t.slug,
    coalesce((SELECT r.key_pattern FROM rate_limit_rule AS r
        WHERE r.tenant_id = d.tenant_id AND r.rule_id = d.rule_id), '')::text AS rule_pattern,
    coalesce((SELECT r.parameters ->> 'meter' FROM rate_limit_rule AS r
        WHERE r.tenant_id = d.tenant_id AND r.rule_id = d.rule_id), '')::text AS rule_meter,
    coalesce((SELECT concat_ws(' · ', nullif(r.parameters ->> 'meter', r.name), nullif(r.name, ''),
        coalesce(r.plan, 'all plans')) FROM rate_limit_rule AS r
        WHERE r.tenant_id = d.tenant_id AND r.rule_id = d.rule_id), '')::text AS rule_detail
FROM delivery AS d
JOIN alert AS a ON a.tenant_id = d.tenant_id AND a.alert_id = d.alert_id
JOIN tenant AS t ON t.tenant_id = d.tenant_id
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id = sqlc.arg(delivery_id) AND d.state <> 'delivered';

-- name: DeliveryMailed :execrows
-- No row if it was delivered or silenced meanwhile.
UPDATE delivery
SET state = 'delivered', attempts = attempts + 1, attempted_at = clock_timestamp(), error = '',
    mail_id = sqlc.arg(mail_id)::bigint
WHERE tenant_id = sqlc.arg(tenant_id) AND delivery_id = sqlc.arg(delivery_id) AND state <> 'delivered';

-- name: FinishAlertDelivery :exec
-- Has no effect on a delivery that was delivered or silenced; only the job's present claim stores a failure.
UPDATE delivery AS d
SET state = CASE WHEN sqlc.arg(delivered)::boolean THEN 'delivered' ELSE 'pending' END, attempts = d.attempts + 1,
    attempted_at = clock_timestamp(), http_status = nullif(sqlc.arg(http_status)::integer, 0), error = sqlc.arg(error)
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id = sqlc.arg(delivery_id) AND d.state <> 'delivered'
    AND (sqlc.arg(delivered)::boolean OR EXISTS (
        SELECT FROM job AS j
        WHERE j.tenant_id = d.tenant_id AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
    ));

-- name: GiveUpDelivery :exec
-- An empty error keeps that of the last attempt.
UPDATE delivery AS d SET state = 'failed', error = coalesce(nullif(sqlc.arg(error)::text, ''), d.error)
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.delivery_id = sqlc.arg(delivery_id) AND d.state = 'pending'
    AND EXISTS (
        SELECT FROM job AS j
        WHERE j.tenant_id = d.tenant_id AND j.job_id = sqlc.arg(job_id) AND j.claim = sqlc.arg(claim)
    );

-- name: TestAlert :one
-- No row while the previous test is pending.
INSERT INTO delivery (tenant_id, alert_id, rule_id, subject, denied, since, raised_at, is_test, kind, per_subject,
    threshold, window_minutes, mode)
SELECT a.tenant_id, a.alert_id, a.rule_id, '', a.threshold, now() - make_interval(mins => a.window_minutes), now(),
    true, a.kind, a.per_subject, a.threshold, a.window_minutes,
    CASE WHEN t.enforcement = 'shadow' THEN 'shadow' ELSE coalesce((SELECT r.mode FROM rate_limit_rule AS r
        WHERE r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id), '') END
FROM alert AS a
JOIN tenant AS t ON t.tenant_id = a.tenant_id
WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.alert_id = sqlc.arg(alert_id) AND NOT EXISTS (
    SELECT FROM delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND d.is_test AND d.state = 'pending'
)
RETURNING *;

-- name: AlertDelivery :one
SELECT * FROM delivery
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND delivery_id = sqlc.arg(delivery_id);

-- name: RetryAlertDelivery :one
-- No row if it was delivered; one whose mail failed gets new mail.
UPDATE delivery AS d SET state = 'pending', mail_id = NULL
WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.alert_id = sqlc.arg(alert_id)
    AND d.delivery_id = sqlc.arg(delivery_id) AND (d.state <> 'delivered' OR EXISTS (
        SELECT FROM mail AS m WHERE m.tenant_id = d.tenant_id AND m.mail_id = d.mail_id AND m.state = 'failed'
    ))
RETURNING *;

-- name: SilenceDeliveries :exec
-- Waiting deliveries would be old by the end of the silence.
UPDATE delivery SET state = 'delivered', silenced = true
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = ANY (sqlc.arg(alert_ids)::bigint[]) AND state = 'pending'
    AND NOT is_test;
