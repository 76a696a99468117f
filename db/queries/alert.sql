-- name: Alerts :many
SELECT sqlc.embed(a), EXISTS (
    SELECT FROM rate_limit_rule AS r WHERE r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id
        AND r.removed_at IS NOT NULL
) AS rule_removed, coalesce((
    SELECT d.raised_at FROM delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND NOT d.is_test
    ORDER BY d.raised_at DESC LIMIT 1
), timestamptz 'epoch')::timestamptz AS raised_at -- the epoch: never
FROM alert AS a
WHERE a.tenant_id = sqlc.arg(tenant_id)
ORDER BY a.alert_id;

-- name: Alert :one
SELECT sqlc.embed(a), EXISTS (
    SELECT FROM rate_limit_rule AS r WHERE r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id
        AND r.removed_at IS NOT NULL
) AS rule_removed, coalesce((
    SELECT d.raised_at FROM delivery AS d
    WHERE d.tenant_id = a.tenant_id AND d.alert_id = a.alert_id AND NOT d.is_test
    ORDER BY d.raised_at DESC LIMIT 1
), timestamptz 'epoch')::timestamptz AS raised_at -- the epoch: never
FROM alert AS a
WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.alert_id = sqlc.arg(alert_id);

-- name: CreateAlert :one
INSERT INTO alert (tenant_id, name, kind, rule_id, per_subject, threshold, window_minutes, format, url, email, secret,
    is_active)
VALUES (sqlc.arg(tenant_id), sqlc.arg(name), sqlc.arg(kind), sqlc.narg(rule_id), sqlc.arg(per_subject),
    sqlc.arg(threshold),
    sqlc.arg(window_minutes), sqlc.arg(format), sqlc.arg(url), sqlc.arg(email), sqlc.arg(secret), sqlc.arg(is_active))
RETURNING alert_id;

-- name: UpdateAlert :execrows
UPDATE alert
SET name = sqlc.arg(name), kind = sqlc.arg(kind), rule_id = sqlc.narg(rule_id), per_subject = sqlc.arg(per_subject),
    threshold = sqlc.arg(threshold),
    window_minutes = sqlc.arg(window_minutes), format = sqlc.arg(format), url = sqlc.arg(url), email = sqlc.arg(email),
    secret = sqlc.arg(secret), is_active = sqlc.arg(is_active),
    version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: RotateAlertSecret :execrows
UPDATE alert
SET secret = sqlc.arg(secret), version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: SealAlertSecret :execrows
-- Its version stays, because nothing that people see changes.
UPDATE alert SET secret = sqlc.arg(sealed)
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND secret = sqlc.arg(stored);

-- name: SilenceAlert :execrows
-- Until null ends a silence.
UPDATE alert
SET silenced_until = sqlc.narg(until)::timestamptz, silenced_by = sqlc.arg(silenced_by),
    silence_reason = sqlc.arg(reason),
    version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id);

-- name: RemoveAlert :execrows
DELETE FROM alert WHERE tenant_id = $1 AND alert_id = $2;

-- name: TurnOffAlertsOfRules :exec
UPDATE alert SET is_active = false, version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = ANY (sqlc.arg(rule_ids)::bigint[]) AND is_active;

-- name: TurnOnAlert :execrows
-- If it is as the write that turned it off left it.
UPDATE alert SET is_active = true, version = version + 1, updated_at = now()
WHERE tenant_id = sqlc.arg(tenant_id) AND alert_id = sqlc.arg(alert_id) AND version = sqlc.arg(version);

-- name: CountedSince :one
-- The first minute after a time in which a rule, 0 for checks as a whole, counted a check; the epoch: none.
SELECT coalesce((
    SELECT d.minute FROM decision_minute AS d
    WHERE d.tenant_id = sqlc.arg(tenant_id) AND d.rule_id = sqlc.arg(rule_id)
        AND d.minute > sqlc.arg(since)::timestamptz
    ORDER BY d.minute LIMIT 1
), timestamptz 'epoch')::timestamptz AS minute;

-- name: AlertCounts :many
-- What alerts judge: counts by rule or subject and minute, of the newest at_most rows that an index finds for each
-- alert after its time. Groups that counted less than the alert's least are left out, but each alert that found rows
-- has one at least, which says how many were looked at and back to when. In each alert all branches but one end before
-- they begin.
WITH wanted AS (
    SELECT unnest(sqlc.arg(places)::integer[]) AS place, unnest(sqlc.arg(kinds)::text[]) AS kind,
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
        WHERE w.kind = 'denials' AND w.rule_id > 0 AND m.tenant_id = sqlc.arg(tenant_id) AND m.rule_id = w.rule_id
            AND NOT (w.per_subject AND m.other) AND m.minute > w.since AND m.minute <= sqlc.arg(until)::timestamptz
        ORDER BY m.minute DESC LIMIT sqlc.arg(at_most)::bigint)
        UNION ALL
        (SELECT m.rule_id, CASE WHEN w.per_subject THEN m.subject ELSE '' END, m.minute, m.denied, 0
        FROM violation_minute AS m
        WHERE w.kind = 'denials' AND w.rule_id = 0 AND m.tenant_id = sqlc.arg(tenant_id)
            AND NOT (w.per_subject AND m.other) AND m.minute > w.since AND m.minute <= sqlc.arg(until)::timestamptz
        ORDER BY m.minute DESC LIMIT sqlc.arg(at_most)::bigint)
        UNION ALL
        (SELECT c.rule_id, CASE WHEN w.per_subject THEN c.subject ELSE '' END, date_trunc('minute', c.crossed_at), 1, 0
        FROM quota_crossing AS c
        WHERE w.kind = 'crossings' AND w.rule_id > 0 AND c.tenant_id = sqlc.arg(tenant_id) AND c.rule_id = w.rule_id
            AND c.crossed_at > w.since AND c.crossed_at <= sqlc.arg(until)::timestamptz
        ORDER BY c.crossed_at DESC LIMIT sqlc.arg(at_most)::bigint)
        UNION ALL
        (SELECT c.rule_id, CASE WHEN w.per_subject THEN c.subject ELSE '' END, date_trunc('minute', c.crossed_at), 1, 0
        FROM quota_crossing AS c
        WHERE w.kind = 'crossings' AND w.rule_id = 0 AND c.tenant_id = sqlc.arg(tenant_id)
            AND c.crossed_at > w.since AND c.crossed_at <= sqlc.arg(until)::timestamptz
        ORDER BY c.crossed_at DESC LIMIT sqlc.arg(at_most)::bigint)
        UNION ALL
        (SELECT d.rule_id, '', d.minute, CASE WHEN w.kind = 'degraded' THEN d.degraded ELSE d.near_limit + d.denied END,
            d.allowed + d.denied + d.bypassed
        FROM decision_minute AS d -- its rule 0 is all checks
        WHERE (w.kind = 'degraded' OR w.kind = 'near_limit' AND w.rule_id > 0) AND d.tenant_id = sqlc.arg(tenant_id)
            AND d.rule_id = w.rule_id
            AND d.minute > w.since AND d.minute <= sqlc.arg(until)::timestamptz
        ORDER BY d.minute DESC LIMIT sqlc.arg(at_most)::bigint)
        UNION ALL
        (SELECT d.rule_id, '', d.minute, d.near_limit + d.denied, d.allowed + d.denied + d.bypassed
        FROM decision_minute AS d
        WHERE w.kind = 'near_limit' AND w.rule_id = 0 AND d.tenant_id = sqlc.arg(tenant_id) AND d.rule_id > 0
            AND d.minute > w.since AND d.minute <= sqlc.arg(until)::timestamptz
        ORDER BY d.minute DESC LIMIT sqlc.arg(at_most)::bigint)
    ) AS n
    GROUP BY n.rule_id, n.subject, n.at
) AS found
WHERE found.total >= w.least OR found.place = 1
ORDER BY 1, 5, 6, 7;
