-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Where a tenant's audit log is sent. How far that is stands apart, because the log has every change of this table.
CREATE TABLE audit_webhook (
    tenant_id  bigint      NOT NULL,
    url        text        NOT NULL,
    secret     text        NOT NULL, -- in plain text, because every post is signed with it
    is_active  boolean     NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT audit_webhook_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT audit_webhook_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT audit_webhook_url_check CHECK (octet_length(url) <= 2048)
);

-- How far a tenant's audit log was sent, and how the latest attempt ended.
CREATE TABLE audit_webhook_progress (
    tenant_id         bigint      NOT NULL,
    sent_to           bigint      NOT NULL, -- the audit_id of the last entry that was received
    skipped           bigint      NOT NULL DEFAULT 0, -- entries that retention deleted before they were received
    failures          integer     NOT NULL DEFAULT 0, -- attempts since the last success
    next_attempt_at   timestamptz NOT NULL DEFAULT now(),
    lease_ends_at     timestamptz, -- while it is attempted, after which another process may try; null otherwise
    attempted_at      timestamptz,
    succeeded_at      timestamptz,
    http_status       integer, -- of the latest answer; null for none
    error             text        NOT NULL DEFAULT '', -- of the latest attempt
    test_requested_at timestamptz, -- null: no test waits
    tested_at         timestamptz,
    test_status       integer,
    test_error        text        NOT NULL DEFAULT '',
    CONSTRAINT audit_webhook_progress_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT audit_webhook_progress_webhook_fkey FOREIGN KEY (tenant_id) REFERENCES audit_webhook (tenant_id) ON DELETE CASCADE
);

-- audit_change logs a change to a tenant's row. Its arguments are the kind of object, and the columns whose values,
-- joined by colons, are the object's id: audit_change('override', 'rule_id', 'user_id'). An object that a tenant has once
-- has its kind as its id.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_row jsonb;
    new_row jsonb;
    object  jsonb;
    keys    text[];
    change  record;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        old_row := to_jsonb(OLD);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        new_row := to_jsonb(NEW);
    END IF;
    SELECT * INTO change FROM audit_images(old_row, new_row);
    IF FOUND THEN
        object := coalesce(new_row, old_row);
        FOR i IN 1..TG_NARGS - 1 LOOP
            keys := keys || (object->>TG_ARGV[i]);
        END LOOP;
        PERFORM write_audit((object->>'tenant_id')::bigint, change.action, TG_ARGV[0],
            coalesce(array_to_string(keys, ':'), TG_ARGV[0]), change.before, change.after);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER audit_webhook_audit AFTER INSERT OR UPDATE OR DELETE ON audit_webhook
    FOR EACH ROW EXECUTE FUNCTION audit_change('audit_webhook');

-- drop_audit_events deletes up to so many entries from before a time, of the tenants' logs and of the platform's. It counts
-- those that a webhook has not received.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION drop_audit_events(older_than timestamptz, at_most integer) RETURNS bigint
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
    WITH dropped AS (
        DELETE FROM public.audit_event WHERE ctid = ANY (ARRAY(
            SELECT old.ctid FROM public.tenant CROSS JOIN LATERAL (
                SELECT e.ctid FROM public.audit_event AS e
                WHERE e.tenant_id = tenant.tenant_id AND e.at < older_than LIMIT at_most
            ) AS old
            LIMIT at_most
        )) RETURNING tenant_id, audit_id
    ), unsent AS (
        SELECT p.tenant_id, count(*) AS entries
        FROM public.audit_webhook_progress AS p
        JOIN dropped AS d ON d.tenant_id = p.tenant_id AND d.audit_id > p.sent_to
        GROUP BY p.tenant_id
    ), counted AS (
        UPDATE public.audit_webhook_progress AS p SET skipped = p.skipped + unsent.entries
        FROM unsent WHERE p.tenant_id = unsent.tenant_id
    )
    SELECT count(*) INTO of_tenants FROM dropped;
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
