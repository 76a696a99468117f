-- name: DecisionsBySpan :many
SELECT date_bin(make_interval(secs => sqlc.arg(step_seconds)::double precision), starts_at,
    timestamptz '1970-01-01 00:00:00Z')::timestamptz AS at,
    sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied, sum(bypassed)::bigint AS bypassed,
    sum(degraded)::bigint AS degraded, sum(cost_taken)::double precision AS cost_taken
FROM decision_span
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id) AND span_minutes = sqlc.arg(span_minutes)
    AND starts_at >= sqlc.arg(since) AND starts_at < sqlc.arg(until)
GROUP BY 1
ORDER BY 1;

-- name: RulesByDenialsInSpans :many
WITH newest AS MATERIALIZED (
    SELECT rule_id, starts_at AS at, allowed, denied, bypassed, degraded, cost_taken
    FROM decision_span
    WHERE tenant_id = sqlc.arg(tenant_id) AND span_minutes = sqlc.arg(span_minutes)
        AND starts_at >= sqlc.arg(since) AND starts_at < sqlc.arg(until)
    ORDER BY starts_at DESC
    LIMIT sqlc.arg(at_most)
)
SELECT rule_id, sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied, sum(bypassed)::bigint AS bypassed,
    sum(degraded)::bigint AS degraded, sum(cost_taken)::double precision AS cost_taken,
    (SELECT count(*) FROM newest)::bigint AS looked_at, (SELECT min(at) FROM newest)::timestamptz AS looked_back_to
FROM newest
WHERE rule_id > 0
GROUP BY rule_id
HAVING sum(denied) > 0
ORDER BY 3 DESC, 1
LIMIT sqlc.arg(page_size);

-- name: TotalsByHour :many
-- Sums of hours inside and minutes at both ends are exact and few rows. Rule 0 is all checks.
SELECT rule_id, sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied, sum(bypassed)::bigint AS bypassed,
    sum(degraded)::bigint AS degraded, sum(cost_taken)::double precision AS cost_taken
FROM (
    SELECT whole.rule_id, whole.allowed, whole.denied, whole.bypassed, whole.degraded, whole.cost_taken
        FROM decision_span AS whole
    WHERE whole.tenant_id = sqlc.arg(tenant_id) AND whole.rule_id = ANY (sqlc.arg(rule_ids)::bigint[])
        AND whole.span_minutes = 60
        AND whole.starts_at >= sqlc.arg(inner_since) AND whole.starts_at < sqlc.arg(inner_until)
    UNION ALL
    SELECT first.rule_id, first.allowed, first.denied, first.bypassed, first.degraded, first.cost_taken
        FROM decision_minute AS first
    WHERE first.tenant_id = sqlc.arg(tenant_id) AND first.rule_id = ANY (sqlc.arg(rule_ids)::bigint[])
        AND first.minute >= sqlc.arg(since) AND first.minute < sqlc.arg(inner_since)
    UNION ALL
    SELECT last.rule_id, last.allowed, last.denied, last.bypassed, last.degraded, last.cost_taken
        FROM decision_minute AS last
    WHERE last.tenant_id = sqlc.arg(tenant_id) AND last.rule_id = ANY (sqlc.arg(rule_ids)::bigint[])
        AND last.minute >= sqlc.arg(inner_until) AND last.minute < sqlc.arg(until)
) AS parts
GROUP BY rule_id;

-- name: TotalsByDay :many
-- Like TotalsByHour, with days inside and hours at both ends.
SELECT rule_id, sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied, sum(bypassed)::bigint AS bypassed,
    sum(degraded)::bigint AS degraded, sum(cost_taken)::double precision AS cost_taken
FROM (
    SELECT whole.rule_id, whole.allowed, whole.denied, whole.bypassed, whole.degraded, whole.cost_taken
        FROM decision_span AS whole
    WHERE whole.tenant_id = sqlc.arg(tenant_id) AND whole.rule_id = ANY (sqlc.arg(rule_ids)::bigint[])
        AND whole.span_minutes = 1440
        AND whole.starts_at >= sqlc.arg(inner_since) AND whole.starts_at < sqlc.arg(inner_until)
    UNION ALL
    SELECT first.rule_id, first.allowed, first.denied, first.bypassed, first.degraded, first.cost_taken
        FROM decision_span AS first
    WHERE first.tenant_id = sqlc.arg(tenant_id) AND first.rule_id = ANY (sqlc.arg(rule_ids)::bigint[])
        AND first.span_minutes = 60
        AND first.starts_at >= sqlc.arg(since) AND first.starts_at < sqlc.arg(inner_since)
    UNION ALL
    SELECT last.rule_id, last.allowed, last.denied, last.bypassed, last.degraded, last.cost_taken
        FROM decision_span AS last
    WHERE last.tenant_id = sqlc.arg(tenant_id) AND last.rule_id = ANY (sqlc.arg(rule_ids)::bigint[])
        AND last.span_minutes = 60
        AND last.starts_at >= sqlc.arg(inner_until) AND last.starts_at < sqlc.arg(until)
) AS parts
GROUP BY rule_id;

-- name: TotalsByRule :many
-- Rule 0 is all checks; negative numbers are no rules.
SELECT rule_id, sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied, sum(bypassed)::bigint AS bypassed,
    sum(degraded)::bigint AS degraded, sum(cost_taken)::double precision AS cost_taken
FROM decision_span
WHERE tenant_id = sqlc.arg(tenant_id) AND span_minutes = 1440 AND rule_id >= 0
    AND starts_at >= sqlc.arg(since) AND starts_at < sqlc.arg(until)
GROUP BY rule_id
ORDER BY rule_id;
