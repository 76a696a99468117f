-- name: DecisionsByMinute :many
-- Steps begin at multiples of step seconds; rule 0 is checks as a whole.
SELECT date_bin(make_interval(secs => sqlc.arg(step_seconds)::double precision), minute,
    timestamptz '1970-01-01 00:00:00Z')::timestamptz AS at,
    sum(allowed)::bigint AS allowed, sum(denied)::bigint AS denied, sum(bypassed)::bigint AS bypassed,
    sum(degraded)::bigint AS degraded, sum(cost_taken)::double precision AS cost_taken
FROM decision_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND rule_id = sqlc.arg(rule_id)
    AND minute >= sqlc.arg(since) AND minute < sqlc.arg(until)
GROUP BY 1
ORDER BY 1;

-- name: RulesByDenialsInMinutes :many
WITH newest AS MATERIALIZED (
    SELECT rule_id, minute AS at, allowed, denied, bypassed, degraded, cost_taken
    FROM decision_minute
    WHERE tenant_id = sqlc.arg(tenant_id) AND minute >= sqlc.arg(since) AND minute < sqlc.arg(until)
    ORDER BY minute DESC
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
