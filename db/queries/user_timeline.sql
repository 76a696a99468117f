-- name: RulesEverOverridden :many
SELECT rule_id FROM rate_limit_override
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = sqlc.arg(user_id)
ORDER BY rule_id
LIMIT sqlc.arg(page_size);

-- name: RulesEverOfPattern :many
SELECT rule_id FROM rate_limit_rule
WHERE tenant_id = sqlc.arg(tenant_id) AND key_pattern = sqlc.arg(key_pattern)
ORDER BY rule_id DESC
LIMIT sqlc.arg(page_size);

-- name: AuditOfObjects :many
-- Each object is read by the index. AuditRowsOfObjects finds packed entries.
SELECT e.* FROM unnest(sqlc.arg(object_ids)::text[]) AS o (id)
CROSS JOIN LATERAL (
    SELECT a.tenant_id, a.audit_id, a.at, a.actor_kind, a.actor_id, a.actor_name, a.act, a.request_id, a.action,
        a.object_kind, a.object_id, a.change_id, a.before, a.after, a.row_count, 0::integer AS row_number
    FROM audit_event AS a
    WHERE a.tenant_id = sqlc.arg(tenant_id) AND a.object_kind = sqlc.arg(object_kind) AND a.object_id = o.id
        AND a.at >= sqlc.arg(since)::timestamptz
        AND (a.at, a.audit_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
    ORDER BY a.at DESC, a.audit_id DESC
    LIMIT sqlc.arg(page_size)
) AS e
ORDER BY e.at DESC, e.audit_id DESC
LIMIT sqlc.arg(page_size);

-- name: DenialsOfUser :many
-- Counts include every denial of rules whose one placeholder is the user; for other rules the newest at_most detail
-- rows are counted.
WITH counted AS MATERIALIZED (
    SELECT m.minute, m.rule_id, m.subject, m.other, m.denied
    FROM violation_minute AS m
    WHERE m.tenant_id = sqlc.arg(tenant_id) AND m.minute >= sqlc.arg(since)::timestamptz
        AND m.minute < sqlc.arg(until)::timestamptz
    ORDER BY m.minute DESC
    LIMIT sqlc.arg(at_most)::bigint
), newest AS MATERIALIZED (
    SELECT v.requested_at, v.rule_id, v.mode, v.count
    FROM rate_limit_violation AS v
    WHERE v.tenant_id = sqlc.arg(tenant_id) AND v.user_id = sqlc.arg(user_id)::text
        AND v.requested_at >= sqlc.arg(since)::timestamptz AND v.requested_at < sqlc.arg(until)::timestamptz
    ORDER BY v.requested_at DESC, v.violation_id DESC
    LIMIT sqlc.arg(at_most)::bigint
), named AS MATERIALIZED (
    SELECT r.rule_id, r.mode FROM rate_limit_rule AS r
    WHERE r.tenant_id = sqlc.arg(tenant_id) AND r.rule_id IN (SELECT c.rule_id FROM counted AS c)
        AND strpos(r.key_pattern, '"') = 0 AND length(r.key_pattern) - length(replace(r.key_pattern, '{', '')) = 1
        AND r.key_pattern ~ '(^|:)user:[{]user_id[}](:|$)'
), parts AS (
    SELECT date_trunc('hour', c.minute, 'UTC') AS hour, c.rule_id, n.mode, c.denied AS counted, 0 AS recorded,
        0 AS unnamed
    FROM counted AS c JOIN named AS n ON n.rule_id = c.rule_id
    WHERE c.subject = sqlc.arg(user_id)::text AND NOT c.other
    UNION ALL
    SELECT date_trunc('hour', c.minute, 'UTC'), c.rule_id, n.mode, 0, 0, c.denied
    FROM counted AS c JOIN named AS n ON n.rule_id = c.rule_id
    WHERE c.other
    UNION ALL
    SELECT date_trunc('hour', v.requested_at, 'UTC'), v.rule_id, v.mode, 0, v.count, 0
    FROM newest AS v
)
SELECT p.hour::timestamptz AS hour, p.rule_id, coalesce(max(p.mode) FILTER (WHERE p.recorded > 0), max(p.mode))::text
    AS mode,
    greatest(sum(p.counted), sum(p.recorded))::bigint AS denied,
    (p.rule_id IN (SELECT n.rule_id FROM named AS n) AND sum(p.unnamed) = 0 AND sum(p.counted) >= sum(p.recorded)
        AND p.hour >= coalesce((SELECT min(c.minute) FROM counted AS c HAVING count(*) >= sqlc.arg(at_most)::bigint),
            p.hour))::boolean AS is_exact
FROM parts AS p
GROUP BY p.hour, p.rule_id
HAVING sum(p.counted) + sum(p.recorded) > 0
ORDER BY p.hour DESC, p.rule_id
LIMIT sqlc.arg(page_size);
