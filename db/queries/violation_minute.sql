-- name: DeniedInMinute :one
SELECT denied FROM violation_minute
WHERE tenant_id = sqlc.arg(tenant_id) AND minute = sqlc.arg(minute) AND rule_id = sqlc.arg(rule_id)
    AND subject = sqlc.arg(subject) AND NOT other;

-- name: ComparedSubjects :many
-- The subjects that one rule denied and another did not, of the newest so many counts of each: the most often denied, and
-- how many there are. A candidate's counts are of checks that passed.
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
), differing AS (
    SELECT false AS is_candidate, l.subject, l.denied FROM by_live AS l
    WHERE NOT EXISTS (SELECT FROM by_candidate AS c WHERE c.subject = l.subject)
    UNION ALL
    SELECT true, c.subject, c.denied FROM by_candidate AS c
    WHERE NOT EXISTS (SELECT FROM by_live AS l WHERE l.subject = c.subject)
), ranked AS (
    SELECT d.is_candidate, d.subject, d.denied,
        row_number() OVER (PARTITION BY d.is_candidate ORDER BY d.denied DESC, d.subject) AS place,
        count(*) OVER (PARTITION BY d.is_candidate) AS subjects
    FROM differing AS d
)
SELECT r.is_candidate::boolean AS is_candidate, r.subject::text AS subject, r.denied::bigint AS denied, r.subjects::bigint AS subjects,
    coalesce(greatest((SELECT min(l.minute) FROM live AS l HAVING count(*) >= sqlc.arg(at_most)::bigint),
        (SELECT min(c.minute) FROM candidate AS c HAVING count(*) >= sqlc.arg(at_most)::bigint)), sqlc.arg(since))::timestamptz AS looked_back_to
FROM ranked AS r
WHERE r.place <= sqlc.arg(page_size)::bigint
ORDER BY r.is_candidate, r.place;
