-- name: PresentDenials :many
-- A row without a value always comes first.
WITH looked AS MATERIALIZED (
    SELECT CASE WHEN sqlc.arg(by_rule)::boolean THEN CASE r.rule_id WHEN 0 THEN '' ELSE r.rule_id::text END
            ELSE r.value END AS value,
        r.other AND (r.rule_id = 0 OR NOT sqlc.arg(by_rule)::boolean) AS is_unknown,
        r.rule_id, r.denied, r.slot >= sqlc.arg(since) AS is_present
    FROM recent_denial AS r
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
