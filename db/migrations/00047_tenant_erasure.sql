-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Removed tenants whose rows are being erased, or were: the receipts, which stay. The tenant's own row stays too, without
-- its name, because its slug is never used again.
CREATE TABLE tenant_erasure (
    slug      text        NOT NULL COLLATE "C",
    of_tenant bigint      NOT NULL,
    began_at  timestamptz NOT NULL DEFAULT now(), -- from then on the tenant cannot be restored
    done_at   timestamptz, -- null: rows are left
    rows      jsonb       NOT NULL DEFAULT '{}', -- how many were erased, by table
    CONSTRAINT tenant_erasure_pkey PRIMARY KEY (of_tenant),
    CONSTRAINT tenant_erasure_tenant_fkey FOREIGN KEY (of_tenant) REFERENCES tenant (tenant_id)
);

-- erase_removed_tenant erases up to so many rows of one table that belong to a removed tenant, and returns true when
-- nothing is left. It finds the tables in the catalog, so that no new one is forgotten: all with a column tenant_id, those
-- that refer to others first, and the audit log last, because other deletions write to it.
-- +goose StatementBegin
CREATE FUNCTION erase_removed_tenant(removed_tenant bigint, at_most integer) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    its_slug text;
    owned    text;
    erased   bigint;
BEGIN
    SELECT slug INTO its_slug FROM public.tenant WHERE tenant_id = removed_tenant AND removed_at IS NOT NULL FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'tenant % is not removed', removed_tenant USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO public.tenant_erasure (slug, of_tenant) VALUES (its_slug, removed_tenant) ON CONFLICT DO NOTHING;
    UPDATE public.tenant SET default_plan = NULL, name = its_slug
    WHERE tenant_id = removed_tenant AND (default_plan IS NOT NULL OR name <> its_slug);
    -- Accounts that have not proven their address can sign in to this tenant only.
    UPDATE public.account SET email = 'erased-' || account_id || '@invalid', name = '', password_hash = '', disabled_at = now()
    WHERE unproven_in = removed_tenant AND email <> 'erased-' || account_id || '@invalid';
    DELETE FROM public.session AS s USING public.account AS a WHERE a.account_id = s.account_id AND a.unproven_in = removed_tenant;
    DELETE FROM public.mailed_link AS l USING public.account AS a WHERE a.account_id = l.account_id AND a.unproven_in = removed_tenant;
    -- The security log is the platform's. Its entries keep the slug, for as long as entries are kept.
    UPDATE public.access_event SET tenant_id = 0 WHERE (at, access_id) IN (
        SELECT e.at, e.access_id FROM public.access_event AS e WHERE e.tenant_id = removed_tenant LIMIT at_most);
    GET DIAGNOSTICS erased = ROW_COUNT;
    IF erased > 0 THEN
        RETURN false;
    END IF;
    FOR owned IN
        WITH RECURSIVE own AS (
            SELECT c.oid FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'tenant'
        ), refers AS (
            SELECT conrelid AS child, confrelid AS parent FROM pg_constraint
            WHERE contype = 'f' AND conrelid <> confrelid AND conrelid IN (SELECT oid FROM own)
        ), depth AS (
            SELECT oid, 0 AS d FROM own
            UNION ALL SELECT refers.parent, depth.d + 1 FROM depth JOIN refers ON refers.child = depth.oid WHERE depth.d < 20
        )
        SELECT depth.oid::regclass::text FROM depth JOIN own USING (oid)
        GROUP BY depth.oid
        ORDER BY depth.oid = 'public.audit_event'::regclass, max(depth.d), depth.oid::regclass::text
    LOOP
        PERFORM set_config('sluice.audit_upkeep', CASE WHEN owned = 'audit_event' THEN 'on' ELSE '' END, true);
        EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$s WHERE tenant_id = $1 LIMIT $2))', owned)
            USING removed_tenant, at_most;
        GET DIAGNOSTICS erased = ROW_COUNT;
        PERFORM set_config('sluice.audit_upkeep', '', true);
        IF erased > 0 THEN
            -- The partitions of a table are one.
            owned := regexp_replace(owned, '_([0-9]{8}|default)$', '');
            UPDATE public.tenant_erasure AS e
            SET rows = e.rows || jsonb_build_object(owned, coalesce((e.rows->>owned)::bigint, 0) + erased)
            WHERE e.of_tenant = removed_tenant;
            RETURN false;
        END IF;
    END LOOP;
    INSERT INTO public.platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id, before)
    SELECT 'system', '', 'sluice', 'erase a removed tenant', '', 'remove', 'tenant', e.slug, jsonb_build_object('rows', e.rows)
    FROM public.tenant_erasure AS e WHERE e.of_tenant = removed_tenant AND e.done_at IS NULL;
    UPDATE public.tenant_erasure AS e SET done_at = now() WHERE e.of_tenant = removed_tenant AND e.done_at IS NULL;
    RETURN true;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION erase_removed_tenant(bigint, integer) FROM PUBLIC;
