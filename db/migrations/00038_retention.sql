-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The audit log can only be added to, except by two functions that run as the owner of the tables.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('sluice.audit_upkeep', true) = 'on' AND TG_OP <> 'TRUNCATE' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit log can only be added to' USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

-- drop_audit_events deletes up to so many entries from before a time, of the tenants' logs and of the platform's.
-- +goose StatementBegin
CREATE FUNCTION drop_audit_events(older_than timestamptz, at_most integer) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    of_tenants bigint;
    of_platform bigint;
BEGIN
    IF older_than > now() - interval '30 days' THEN
        RAISE EXCEPTION 'the audit log is kept for 30 days at least, so not dropped before %', older_than;
    END IF;
    PERFORM set_config('sluice.audit_upkeep', 'on', true);
    DELETE FROM public.audit_event WHERE ctid = ANY (ARRAY(
        SELECT old.ctid FROM public.tenant CROSS JOIN LATERAL (
            SELECT e.ctid FROM public.audit_event AS e
            WHERE e.tenant_id = tenant.tenant_id AND e.at < older_than LIMIT at_most
        ) AS old
        LIMIT at_most
    ));
    GET DIAGNOSTICS of_tenants = ROW_COUNT;
    DELETE FROM public.platform_audit_event WHERE audit_id IN (
        SELECT first.audit_id FROM (SELECT e.audit_id, e.at FROM public.platform_audit_event AS e ORDER BY e.audit_id LIMIT at_most) AS first
        WHERE first.at < older_than
    );
    GET DIAGNOSTICS of_platform = ROW_COUNT;
    PERFORM set_config('sluice.audit_upkeep', '', true);
    RETURN greatest(of_tenants, of_platform);
END
$$;
-- +goose StatementEnd

-- erase_user_from_audit replaces a user's id by another text in a tenant's log, and empties the reasons of the user's
-- overrides, which people write about persons. It returns the number of changed entries.
-- +goose StatementBegin
CREATE FUNCTION erase_user_from_audit(of_tenant bigint, erased text, alias text) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    changed bigint;
BEGIN
    IF of_tenant::text <> coalesce(current_setting('sluice.tenant', true), '') THEN
        RAISE EXCEPTION 'another tenant''s log' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM set_config('sluice.audit_upkeep', 'on', true);
    UPDATE public.audit_event AS e
    SET object_id = CASE e.object_kind WHEN 'user' THEN alias ELSE split_part(e.object_id, ':', 1) || ':' || alias END,
        before = e.before || CASE WHEN e.before ? 'user_id' THEN jsonb_build_object('user_id', alias) ELSE '{}' END
            || CASE WHEN e.before ? 'reason' THEN '{"reason": ""}'::jsonb ELSE '{}' END,
        after = e.after || CASE WHEN e.after ? 'user_id' THEN jsonb_build_object('user_id', alias) ELSE '{}' END
            || CASE WHEN e.after ? 'reason' THEN '{"reason": ""}'::jsonb ELSE '{}' END
    WHERE e.tenant_id = of_tenant AND (e.object_kind = 'user' AND e.object_id = erased
        OR e.object_kind IN ('override', 'bucket') AND (e.before->>'user_id' = erased OR e.after->>'user_id' = erased));
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM set_config('sluice.audit_upkeep', '', true);
    RETURN changed;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION drop_audit_events(timestamptz, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION erase_user_from_audit(bigint, text, text) FROM PUBLIC;
