-- name: PresentDenials :many
-- A row without a value always comes first.
WITH looked AS MATERIALIZED (
    SELECT CASE WHEN sqlc.arg(by_rule)::boolean THEN CASE r.rule_id WHEN 0 THEN '' ELSE r.rule_id::text END
            ELSE r.value END AS value,
        r.other AND (r.rule_id = 0 OR NOT sqlc.arg(by_rule)::boolean) AS is_unknown,
        r.rule_id, r.denied, r.slot >= sqlc.arg(since) AS is_present
    FROM denial_count AS r
    WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.dimension = sqlc.arg(dimension)::text AND r.mode = 'enforce'
        AND r.slot >= sqlc.arg(earlier) AND r.slot < sqlc.arg(until)
        AND (sqlc.arg(meter)::text = '' OR r.rule_id = 0 OR r.rule_id IN (
            SELECT of_meter.rule_id FROM rate_limit_rule AS of_meter
            WHERE of_meter.tenant_id = sqlc.arg(tenant_id)
                AND coalesce(of_meter.parameters ->> 'meter', 'requests') = sqlc.arg(meter)::text))
    ORDER BY r.slot DESC
    LIMIT sqlc.arg(at_most)::bigint
), parts AS (
    SELECT l.value, l.rule_id,
        coalesce(sum(l.denied) FILTER (WHERE l.is_present), 0) AS denied,
        coalesce(sum(l.denied) FILTER (WHERE NOT l.is_present), 0) AS earlier,
        coalesce(sum(l.denied) FILTER (WHERE l.is_present AND l.is_unknown), 0) AS unattributed
    FROM looked AS l
    GROUP BY l.value, l.rule_id
    UNION ALL
    SELECT '', 0, 0, 0, 0
)
SELECT p.value::text AS value, sum(p.denied)::bigint AS denied, sum(p.earlier)::bigint AS earlier,
    (array_agg(p.rule_id ORDER BY p.denied DESC, p.earlier DESC, p.rule_id))[1]::bigint AS rule_id,
    sum(p.unattributed)::bigint AS unattributed,
    (SELECT coalesce(sum(a.denied), 0) FROM parts AS a)::bigint AS all_denied
FROM parts AS p
GROUP BY p.value
ORDER BY p.value = '' DESC, denied DESC, earlier DESC, p.value
LIMIT sqlc.arg(page_size);

-- name: TopOfDenials :many
-- A row without a value always comes first. The newest at_most counts are read, back to looked_back_to.
WITH counted AS MATERIALIZED (
    SELECT c.slot, c.value, c.other, c.denied
    FROM denial_count AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.dimension = sqlc.arg(dimension)::text
        AND c.slot >= sqlc.arg(since) AND c.slot < sqlc.arg(until)
        AND (sqlc.arg(rule_id)::bigint = 0 OR c.rule_id IN (0, sqlc.arg(rule_id)::bigint))
        AND sqlc.arg(mode)::text IN ('', c.mode)
        AND (sqlc.arg(meter)::text = '' OR c.rule_id = 0 OR c.rule_id IN (
            SELECT of_meter.rule_id FROM rate_limit_rule AS of_meter
            WHERE of_meter.tenant_id = sqlc.arg(tenant_id)
                AND coalesce(of_meter.parameters ->> 'meter', 'requests') = sqlc.arg(meter)::text))
    ORDER BY c.slot DESC
    LIMIT sqlc.arg(at_most)::bigint
)
SELECT p.value::text AS value, coalesce(sum(p.denied) FILTER (WHERE NOT p.other), 0)::bigint AS denied,
    max(p.slot)::timestamptz AS last_at,
    coalesce(sum(p.denied) FILTER (WHERE p.other), 0)::bigint AS unattributed,
    coalesce((SELECT min(c.slot) FROM counted AS c HAVING count(*) >= sqlc.arg(at_most)::bigint),
        sqlc.arg(since))::timestamptz AS looked_back_to
FROM (
    SELECT * FROM counted
    UNION ALL
    SELECT sqlc.arg(since)::timestamptz, '', false, 0
) AS p
GROUP BY p.value
ORDER BY p.value = '' DESC, denied DESC, p.value
LIMIT sqlc.arg(page_size);

-- name: DenialsInSteps :many
-- Of all values, or of one. The newest at_most counts are read, back to looked_back_to. Steps are whole minutes.
WITH newest AS MATERIALIZED (
    SELECT c.slot, c.rule_id, c.other, c.denied
    FROM denial_count AS c
    WHERE c.tenant_id = sqlc.arg(tenant_id) AND c.dimension = sqlc.arg(dimension)::text
        AND c.slot >= sqlc.arg(since) AND c.slot < sqlc.arg(until)
        AND (sqlc.arg(of_all)::boolean OR c.other OR c.value = sqlc.arg(value)::text)
        AND (sqlc.arg(rule_id)::bigint = 0 OR c.rule_id IN (0, sqlc.arg(rule_id)::bigint))
        AND sqlc.arg(mode)::text IN ('', c.mode)
        AND (sqlc.arg(meter)::text = '' OR c.rule_id = 0 OR c.rule_id IN (
            SELECT of_meter.rule_id FROM rate_limit_rule AS of_meter
            WHERE of_meter.tenant_id = sqlc.arg(tenant_id)
                AND coalesce(of_meter.parameters ->> 'meter', 'requests') = sqlc.arg(meter)::text))
    ORDER BY c.slot DESC
    LIMIT sqlc.arg(at_most)
), parts AS (
    SELECT n.slot, n.denied, n.other AND (NOT sqlc.arg(of_all)::boolean
        OR n.rule_id = 0 AND (sqlc.arg(rule_id)::bigint <> 0 OR sqlc.arg(meter)::text <> '')) AS is_unknown
    FROM newest AS n
)
SELECT date_bin(make_interval(secs => sqlc.arg(step_seconds)::double precision), p.slot,
    timestamptz '1970-01-01 00:00:00Z')::timestamptz AS at,
    coalesce(sum(p.denied) FILTER (WHERE NOT p.is_unknown), 0)::bigint AS checks,
    coalesce(sum(p.denied) FILTER (WHERE p.is_unknown), 0)::bigint AS unattributed,
    (SELECT count(*) FROM newest)::bigint AS looked_at,
    (SELECT min(n.slot) FROM newest AS n)::timestamptz AS looked_back_to
FROM parts AS p
GROUP BY 1
ORDER BY 1;
