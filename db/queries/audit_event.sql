-- An index finds entries by the first of these that the filter names: the change, the object, the actor, the kind of
-- object. The parameters by_… hold that one.

-- name: AuditPage :many
SELECT tenant_id, audit_id, at, actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id,
    change_id, before, after, row_count, 0::integer AS row_number
FROM audit_event
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (at, audit_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
    AND (at, audit_id) >= (sqlc.arg(last_at)::timestamptz, sqlc.arg(last_id)::bigint)
    AND (sqlc.arg(change_id)::bigint = 0 OR change_id = sqlc.arg(change_id)::bigint)
    AND (sqlc.arg(object_kind)::text = '' OR object_kind = sqlc.arg(object_kind)::text)
    AND (sqlc.arg(object_id)::text = '' OR object_id = sqlc.arg(object_id)::text)
    AND (sqlc.arg(actor_id)::text = '' OR actor_id = sqlc.arg(actor_id)::text)
    AND (sqlc.arg(action)::text = '' OR action = sqlc.arg(action)::text)
    AND (sqlc.arg(request_id)::text = '' OR request_id = sqlc.arg(request_id)::text)
ORDER BY at DESC, audit_id DESC
LIMIT sqlc.arg(page_size);

-- name: AuditLookedAt :one
-- No row if there are fewer.
SELECT at, audit_id FROM audit_event
WHERE tenant_id = sqlc.arg(tenant_id)
    AND (at, audit_id) < (sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint)
    AND at >= sqlc.arg(since)::timestamptz
    AND (sqlc.arg(by_change_id)::bigint = 0 OR change_id = sqlc.arg(by_change_id)::bigint)
    AND (sqlc.arg(by_object_kind)::text = '' OR object_kind = sqlc.arg(by_object_kind)::text)
    AND (sqlc.arg(by_object_id)::text = '' OR object_id = sqlc.arg(by_object_id)::text)
    AND (sqlc.arg(by_actor_id)::text = '' OR actor_id = sqlc.arg(by_actor_id)::text)
ORDER BY at DESC, audit_id DESC
LIMIT 1 OFFSET sqlc.arg(number)::bigint - 1;

-- name: AuditRowsOfObjects :many
SELECT e.tenant_id, e.audit_id, e.at, e.actor_kind, e.actor_id, e.actor_name, e.act, e.request_id, e.action,
    e.object_kind, (r.image->>'id')::text AS object_id, e.change_id, nullif(r.image->'before', 'null')::jsonb AS before,
    nullif(r.image->'after', 'null')::jsonb AS after, e.row_count, r.number::integer AS row_number
FROM audit_event AS e
CROSS JOIN LATERAL jsonb_array_elements(e.rows) WITH ORDINALITY AS r (image, number)
WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.audit_id IN (
        SELECT packed_audit_of(sqlc.arg(tenant_id)::bigint, sqlc.arg(object_kind)::text, sqlc.arg(object_ids)::text[],
            sqlc.arg(since)::timestamptz, sqlc.arg(before_at)::timestamptz, sqlc.arg(before_id)::bigint,
            sqlc.arg(page_size)::integer))
    AND r.image->>'id' = ANY (sqlc.arg(object_ids)::text[])
ORDER BY e.at DESC, e.audit_id DESC
LIMIT sqlc.arg(page_size)::integer;

-- name: AuditEntry :one
SELECT * FROM audit_event WHERE tenant_id = $1 AND audit_id = $2;

-- name: LatestOfChange :one
SELECT audit_id FROM audit_event
WHERE tenant_id = sqlc.arg(tenant_id) AND change_id = nullif(current_setting('sluice.change', true), '')::bigint
    AND object_kind = sqlc.arg(object_kind) AND object_id = sqlc.arg(object_id)
ORDER BY at DESC, audit_id DESC
LIMIT 1;

-- name: WriteAudit :one
SELECT write_audit(sqlc.arg(tenant_id)::bigint, sqlc.arg(action)::text, sqlc.arg(object_kind)::text,
    sqlc.arg(object_id)::text,
    sqlc.narg(before)::jsonb, sqlc.narg(after)::jsonb)::bigint AS audit_id;
