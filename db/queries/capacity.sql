-- name: Capacity :many
SELECT
    t.thing::text AS thing,
    coalesce(
        (SELECT u.held FROM tenant_use AS u WHERE u.tenant_id = sqlc.arg(tenant_id) AND u.thing = t.thing),
        count_held(sqlc.arg(tenant_id), t.thing)
    )::bigint AS held,
    default_capacity(t.thing)::bigint AS default_capacity,
    coalesce(
        (SELECT (to_jsonb(q) ->> t.thing)::bigint FROM tenant_capacity AS q WHERE q.tenant_id = sqlc.arg(tenant_id)),
        default_capacity(t.thing)
    )::bigint AS allowed,
    (NOT EXISTS (SELECT FROM tenant_capacity AS q WHERE q.tenant_id = sqlc.arg(tenant_id)
        AND to_jsonb(q) ->> t.thing IS NOT NULL))::boolean
        AS is_default
FROM unnest(sqlc.arg(things)::text[]) WITH ORDINALITY AS t (thing, place)
ORDER BY t.place;

-- name: CapacityVersion :one
-- No row if the tenant never had exceptions.
SELECT version FROM tenant_capacity WHERE tenant_id = $1;

-- name: CountHeldLater :exec
-- This transaction must run CountHeldNow; see count_held_later.
SELECT count_held_later(sqlc.arg(tenant_id));

-- name: CountHeldNow :exec
SELECT count_held_now(sqlc.arg(tenant_id));

-- name: CountAssigned :one
SELECT count(*) FROM plan_assignment
WHERE tenant_id = sqlc.arg(tenant_id) AND user_id = ANY (sqlc.arg(user_ids)::text[]) AND removed_at IS NULL;
