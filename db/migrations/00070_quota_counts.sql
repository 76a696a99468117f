-- +goose Up
SET LOCAL lock_timeout = '2s';

-- A wrong number of tenant_use stopped what would bring it below 0. Now it is 0, until recount_held has the right one.
--
-- change_held notes that a tenant holds so many more of a thing, and refuses more than its quota. Less is never refused,
-- so a quota below what is held only stops growth. The row's lock makes the second of two writers see what the first has added.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION change_held(of_tenant bigint, of_thing text, change bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    now_held bigint;
    may_hold bigint;
BEGIN
    IF of_thing = 'api_keys' THEN -- they expire by themselves, so their number is never stored
        now_held := count_held(of_tenant, of_thing);
    ELSE
        UPDATE tenant_use AS u SET held = greatest(0, u.held + change)
        WHERE u.tenant_id = of_tenant AND u.thing = of_thing RETURNING u.held INTO now_held;
        IF NOT FOUND AND change <= 0 THEN
            RETURN;
        ELSIF NOT FOUND THEN
            INSERT INTO tenant_use AS u (tenant_id, thing, held) VALUES (of_tenant, of_thing, count_held(of_tenant, of_thing))
            ON CONFLICT (tenant_id, thing) DO UPDATE SET held = u.held + change RETURNING u.held INTO now_held;
        END IF;
    END IF;
    IF change <= 0 THEN
        RETURN;
    END IF;
    SELECT (to_jsonb(q)->>of_thing)::bigint INTO may_hold FROM tenant_quota AS q WHERE q.tenant_id = of_tenant;
    may_hold := coalesce(may_hold, default_quota(of_thing));
    IF now_held > may_hold THEN
        RAISE EXCEPTION 'tenant % may hold % %, and would hold %', of_tenant, may_hold, of_thing, now_held
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tenant_quota', DETAIL = jsonb_build_object(
                'thing', of_thing, 'held', now_held - change, 'would_hold', now_held, 'allowed', may_hold);
    END IF;
END
$$;
-- +goose StatementEnd

-- recount_held counts what a tenant holds of a thing anew. SQL by hand can miss the triggers, as with session_replication_role or
-- TRUNCATE. Writers wait for the row's lock; those before it have committed, so that the next statement sees their rows.
-- +goose StatementBegin
CREATE FUNCTION recount_held(of_tenant bigint, of_thing text) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    PERFORM FROM tenant_use AS u WHERE u.tenant_id = of_tenant AND u.thing = of_thing FOR UPDATE;
    UPDATE tenant_use AS u SET held = count_held(of_tenant, of_thing) WHERE u.tenant_id = of_tenant AND u.thing = of_thing;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION recount_held(bigint, text) FROM PUBLIC;
