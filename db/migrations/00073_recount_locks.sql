-- +goose Up
SET LOCAL lock_timeout = '2s';

-- recount_held counts what a tenant holds of a thing anew. SQL by hand can miss the triggers, as with session_replication_role or
-- TRUNCATE. It locks the tenant as writes do, because count_held_now adds a difference that it read before: without the lock
-- both would correct the same number. SQL by hand does not lock the tenant, but waits at the row of tenant_use; what did not wait
-- has committed, so that the next statement sees its rows.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION recount_held(of_tenant bigint, of_thing text) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    PERFORM FROM tenant AS t WHERE t.tenant_id = of_tenant FOR NO KEY UPDATE;
    PERFORM FROM tenant_use AS u WHERE u.tenant_id = of_tenant AND u.thing = of_thing FOR UPDATE;
    UPDATE tenant_use AS u SET held = count_held(of_tenant, of_thing) WHERE u.tenant_id = of_tenant AND u.thing = of_thing;
END
$$;
-- +goose StatementEnd
