-- name: DeniedInMinute :one
SELECT denied FROM violation_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND minute = sqlc.arg(minute) AND rule_id = sqlc.arg(rule_id)
    AND subject = sqlc.arg(subject) AND NOT other;

-- name: ComparedSubjects :many
-- A candidate's counts are of checks that passed.
WITH live AS MATERIALIZED (
    SELECT m.minute, m.subject, m.denied FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.rule_id = sqlc.arg(live)::bigint
        AND m.minute >= sqlc.arg(since) AND m.minute < sqlc.arg(until) AND NOT m.other
    ORDER BY m.minute DESC
    LIMIT sqlc.arg(at_most)::bigint
), candidate AS MATERIALIZED (
    SELECT m.minute, m.subject, m.denied FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.rule_id = sqlc.arg(candidate)::bigint
        AND m.minute >= sqlc.arg(since) AND m.minute < sqlc.arg(until) AND NOT m.other
    ORDER BY m.minute DESC
    LIMIT sqlc.arg(at_most)::bigint
), by_live AS (
    SELECT l.subject, sum(l.denied) AS denied FROM live AS l GROUP BY l.subject
), by_candidate AS (
    SELECT c.subject, sum(c.denied) AS denied FROM candidate AS c GROUP BY c.subject
)
SELECT c.subject::text AS subject, c.denied::bigint AS candidate_denied,
    coalesce((SELECT l.denied FROM by_live AS l WHERE l.subject = c.subject), 0)::bigint AS live_denied,
    count(*) OVER ()::bigint AS subjects,
    coalesce(greatest((SELECT min(l.minute) FROM live AS l HAVING count(*) >= sqlc.arg(at_most)::bigint),
        (SELECT min(c.minute) FROM candidate AS c HAVING count(*) >= sqlc.arg(at_most)::bigint)),
            sqlc.arg(since))::timestamptz AS looked_back_to
FROM by_candidate AS c
ORDER BY c.denied DESC, c.subject
LIMIT sqlc.arg(page_size)::bigint;
