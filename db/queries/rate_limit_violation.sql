-- name: ViolationsBefore :many
-- Looks at the newest look_at rows before a position that the index of by_… finds. The comparison of pairs is the
-- position; the one of times beside it leaves out partitions.
SELECT looked.* FROM (
    SELECT * FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id)
        AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
        AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
        AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
        AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
        AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
        AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(look_at)
) AS looked
WHERE (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
    AND (sqlc.arg(scope)::text = '' OR scope = sqlc.arg(scope)::text)
    AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
    AND (sqlc.arg(meter)::text = '' OR coalesce(nullif(meter, ''), 'requests') = sqlc.arg(meter)::text)
    AND (sqlc.arg(plan)::text = '' OR plan = sqlc.arg(plan)::text)
    AND (sqlc.arg(network)::text = '' OR ip_address <<= nullif(sqlc.arg(network)::text, '')::inet)
    AND (sqlc.arg(endpoint)::text = '' OR endpoint = sqlc.arg(endpoint)::text)
    AND (sqlc.arg(endpoint_prefix)::text = '' OR starts_with(endpoint, sqlc.arg(endpoint_prefix)::text))
ORDER BY requested_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: LastLookedAt :many
-- Returns the last row that ViolationsBefore looks at, and the next one.
SELECT requested_at, violation_id FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND requested_at >= sqlc.arg(since) AND requested_at <= sqlc.arg(before_at)
    AND (requested_at, violation_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
    AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
    AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
    AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
    AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
ORDER BY requested_at DESC, violation_id DESC
LIMIT 2 OFFSET sqlc.arg(look_at)::bigint - 1;

-- name: Violation :one
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at = sqlc.arg(requested_at)
    AND violation_id = sqlc.arg(violation_id);

-- name: ViolationsArrived :many
-- Rows count by when they were written, up to so many seconds before a time (null: now).
SELECT * FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id)
    AND recorded_at >= coalesce(sqlc.narg(since)::timestamptz,
        now()) - make_interval(secs => sqlc.arg(seconds)::double precision)
ORDER BY recorded_at DESC, violation_id DESC
LIMIT sqlc.arg(page_size);

-- name: ViolationArrivedAt :one
SELECT recorded_at FROM rate_limit_violation
WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at = sqlc.arg(requested_at)
    AND violation_id = sqlc.arg(violation_id);

-- name: ViolationsInSteps :many
-- Looks at the newest rows that the index of by_… finds.
WITH newest AS MATERIALIZED (
    SELECT requested_at, count, rule_id, scope, mode, meter, plan, user_id, ip_address, endpoint
    FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at >= sqlc.arg(since) AND requested_at < sqlc.arg(until)
        AND (sqlc.arg(by_user)::text = '' OR user_id = sqlc.arg(by_user)::text)
        AND (sqlc.narg(by_address)::inet IS NULL OR ip_address = sqlc.narg(by_address)::inet)
        AND (sqlc.arg(by_endpoint)::text = '' OR endpoint = sqlc.arg(by_endpoint)::text)
        AND (sqlc.arg(by_rule)::bigint = 0 OR rule_id = sqlc.arg(by_rule)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(at_most)
), looked AS (SELECT count(*) AS rows, min(requested_at) AS back_to FROM newest)
SELECT date_bin(make_interval(secs => sqlc.arg(step_seconds)::double precision), requested_at,
    timestamptz '1970-01-01 00:00:00Z')::timestamptz AS at,
    coalesce(sum(count) FILTER (WHERE
        (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
        AND (sqlc.arg(scope)::text = '' OR scope = sqlc.arg(scope)::text)
        AND (sqlc.arg(mode)::text = '' OR mode = sqlc.arg(mode)::text)
        AND (sqlc.arg(meter)::text = '' OR coalesce(nullif(meter, ''), 'requests') = sqlc.arg(meter)::text)
        AND (sqlc.arg(plan)::text = '' OR plan = sqlc.arg(plan)::text)
        AND (sqlc.arg(user_id)::text = '' OR user_id = sqlc.arg(user_id)::text)
        AND (sqlc.arg(network)::text = '' OR ip_address <<= nullif(sqlc.arg(network)::text, '')::inet)
        AND (sqlc.arg(endpoint)::text = '' OR endpoint = sqlc.arg(endpoint)::text)
        AND (sqlc.arg(endpoint_prefix)::text = '' OR starts_with(endpoint, sqlc.arg(endpoint_prefix)::text))),
            0)::bigint AS checks,
    (SELECT rows FROM looked)::bigint AS looked_at, (SELECT back_to FROM looked)::timestamptz AS looked_back_to
FROM newest
GROUP BY 1
ORDER BY 1;

-- name: TopOfViolations :many
-- A row without a value always comes first.
--
-- If a rule's one placeholder is the dimension, the subject of its counts names the value, and counts include every
-- denial. A network's subject names its larger network: all of a /64 is in one /48. Detail rows name the values of
-- other rules; denials without a row are unattributed. Recent denials, which name every value, are read from
-- recent_since on. The newest at_most rows of each are read, back to looked_back_to.
WITH counted AS MATERIALIZED (
    SELECT m.minute, m.rule_id, m.subject, m.other, m.denied, m.detail_dropped,
        sqlc.arg(dimension)::text = 'ip' AND strpos(m.subject, '/') > 0 AS is_network
    FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id)
        AND m.minute >= date_trunc('minute', sqlc.arg(since)::timestamptz, 'UTC')
        AND m.minute < least(sqlc.arg(until)::timestamptz, sqlc.arg(recent_since)::timestamptz)
        AND (sqlc.arg(rule_id)::bigint = 0 OR m.rule_id = sqlc.arg(rule_id)::bigint)
    ORDER BY m.minute DESC
    LIMIT sqlc.arg(at_most)::bigint
), newest AS MATERIALIZED (
    SELECT CASE sqlc.arg(dimension)::text WHEN 'user' THEN user_id WHEN 'ip' THEN host(ip_address)
        WHEN 'endpoint' THEN endpoint
            WHEN 'network' THEN network(set_masklen(ip_address, CASE family(ip_address) WHEN 4 THEN 24
                ELSE 48 END))::text END AS value,
        sqlc.arg(mode)::text IN ('', mode)
            AND sqlc.arg(meter)::text IN ('', coalesce(nullif(meter, ''), 'requests')) AS wanted, rule_id, count,
            requested_at, last_at,
        sqlc.arg(dimension)::text = 'ip' AND strpos(bucket_key, '/') > 0 AS is_network
    FROM rate_limit_violation
    WHERE tenant_id = sqlc.arg(tenant_id) AND requested_at >= sqlc.arg(since)
        AND requested_at < least(sqlc.arg(until)::timestamptz, sqlc.arg(recent_since)::timestamptz)
        AND (sqlc.arg(rule_id)::bigint = 0 OR rule_id = sqlc.arg(rule_id)::bigint)
    ORDER BY requested_at DESC, violation_id DESC
    LIMIT sqlc.arg(at_most)::bigint
), recent AS MATERIALIZED (
    SELECT r.slot, r.value, r.other, r.denied
    FROM recent_denial AS r
    WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.dimension = sqlc.arg(dimension)::text
        AND r.slot >= greatest(sqlc.arg(recent_since)::timestamptz, date_bin(
            make_interval(secs => sqlc.arg(slot_seconds)::double precision), sqlc.arg(since)::timestamptz,
            timestamptz '1970-01-01 00:00:00Z'))
        AND r.slot < sqlc.arg(until)
        AND (sqlc.arg(rule_id)::bigint = 0 OR r.rule_id IN (0, sqlc.arg(rule_id)::bigint))
        AND sqlc.arg(mode)::text IN ('', r.mode)
        AND (sqlc.arg(meter)::text = '' OR r.rule_id = 0 OR r.rule_id IN (
            SELECT of_meter.rule_id FROM rate_limit_rule AS of_meter
            WHERE of_meter.tenant_id = sqlc.arg(tenant_id)
                AND coalesce(of_meter.parameters ->> 'meter', 'requests') = sqlc.arg(meter)::text))
    ORDER BY r.slot DESC
    LIMIT sqlc.arg(at_most)::bigint
), met AS MATERIALIZED (
    -- A quoted literal may look like a placeholder, so patterns with one are left to the detail rows.
    SELECT r.rule_id,
        sqlc.arg(mode)::text IN ('', r.mode)
            AND sqlc.arg(meter)::text IN ('', coalesce(r.parameters ->> 'meter', 'requests')) AS wanted,
        strpos(r.key_pattern, '"') = 0 AND length(r.key_pattern) - length(replace(r.key_pattern, '{', '')) = 1
            AND r.key_pattern ~ CASE sqlc.arg(dimension)::text
                WHEN 'user' THEN '(^|:)user:[{]user_id[}](:|$)'
                WHEN 'ip' THEN '(^|:)ip:[{]ip[}](:|$)'
                WHEN 'network' THEN '(^|:)ip:[{]ip[}](:|$)'
                WHEN 'endpoint' THEN '(^|:)endpoint:[{]endpoint[}](:|$)' END AS names_value
    FROM rate_limit_rule AS r
    WHERE r.tenant_id = sqlc.arg(tenant_id)
        AND r.rule_id IN (SELECT c.rule_id FROM counted AS c UNION SELECT n.rule_id FROM newest AS n)
), parts AS (
    SELECT CASE sqlc.arg(dimension)::text WHEN 'network'
            THEN network(set_masklen(c.subject::inet,
                least(masklen(c.subject::inet), CASE family(c.subject::inet) WHEN 4 THEN 24 ELSE 48 END)))::text
            ELSE c.subject END AS value,
        c.denied, c.minute AS last_at, 0 AS unattributed
    FROM counted AS c
    JOIN met ON met.rule_id = c.rule_id AND met.names_value AND met.wanted
    WHERE NOT c.other AND NOT c.is_network
    UNION ALL
    SELECT n.value,
        CASE WHEN n.rule_id IN (SELECT met.rule_id FROM met WHERE met.names_value) AND NOT n.is_network THEN 0
            ELSE n.count END,
        n.last_at, 0
    FROM newest AS n
    WHERE n.value <> '' AND n.wanted
    UNION ALL
    SELECT r.value, CASE WHEN r.other THEN 0 ELSE r.denied END, r.slot, CASE WHEN r.other THEN r.denied ELSE 0 END
    FROM recent AS r
    UNION ALL
    SELECT '', 0, NULL, c.detail_dropped
    FROM counted AS c
    WHERE (c.other OR c.is_network OR c.rule_id NOT IN (SELECT met.rule_id FROM met WHERE met.names_value))
        AND (sqlc.arg(mode)::text || sqlc.arg(meter)::text = ''
            OR c.rule_id IN (SELECT met.rule_id FROM met WHERE met.wanted))
    UNION ALL
    SELECT '', 0, NULL, 0
)
SELECT p.value::text AS value, sum(p.denied)::bigint AS denied,
    coalesce(max(p.last_at), sqlc.arg(since))::timestamptz AS last_at,
    sum(p.unattributed)::bigint AS unattributed,
    coalesce(greatest((SELECT min(n.requested_at) FROM newest AS n HAVING count(*) >= sqlc.arg(at_most)::bigint),
        (SELECT min(c.minute) FROM counted AS c HAVING count(*) >= sqlc.arg(at_most)::bigint),
        (SELECT min(r.slot) FROM recent AS r HAVING count(*) >= sqlc.arg(at_most)::bigint)),
            sqlc.arg(since))::timestamptz AS looked_back_to
FROM parts AS p
GROUP BY p.value
HAVING p.value = '' OR sum(p.denied) > 0
ORDER BY p.value = '' DESC, denied DESC, p.value
LIMIT sqlc.arg(page_size);
