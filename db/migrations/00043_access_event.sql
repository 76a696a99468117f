-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The security log: who got in and who did not; see the package auth, AccessLog.
CREATE TABLE access_event (
    at         timestamptz NOT NULL, -- the first of count events
    access_id  bigint      NOT NULL, -- random, so that an entry that is written twice is stored once
    tenant_id  bigint      NOT NULL, -- 0 for none
    tenant     text        NOT NULL COLLATE "C", -- the slug, which stays when the tenant's rows are deleted
    count      bigint      NOT NULL,
    kind       text        NOT NULL COLLATE "C",
    account_id bigint      NOT NULL, -- 0 for none
    key_id     text        NOT NULL COLLATE "C",
    who        text        NOT NULL COLLATE "C", -- the account's address or the key's name
    typed      text        NOT NULL COLLATE "C", -- the address that a stranger typed
    ip         inet,
    user_agent text        NOT NULL,
    detail     text        NOT NULL,
    request_id text        NOT NULL,
    CONSTRAINT access_event_pkey PRIMARY KEY (at, access_id)
);

CREATE INDEX access_event_tenant_idx ON access_event (tenant_id, at, access_id);
CREATE INDEX access_event_account_idx ON access_event (account_id, at, access_id) WHERE account_id <> 0;
CREATE INDEX access_event_typed_idx ON access_event (lower(typed), at, access_id) WHERE typed <> '';
CREATE INDEX access_event_who_idx ON access_event (lower(who), at, access_id) WHERE who <> '';
CREATE INDEX access_event_kind_idx ON access_event (kind, at, access_id);
CREATE INDEX access_event_ip_idx ON access_event (ip, at, access_id) WHERE ip IS NOT NULL;

-- drop_access_events deletes up to so many entries of the security log from before a time. Programs may only add entries.
-- +goose StatementBegin
CREATE FUNCTION drop_access_events(older_than timestamptz, at_most integer) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    dropped bigint;
BEGIN
    IF older_than > now() - interval '30 days' THEN
        RAISE EXCEPTION 'the security log is kept for 30 days at least, so not dropped before %', older_than;
    END IF;
    DELETE FROM public.access_event WHERE (at, access_id) IN (
        SELECT e.at, e.access_id FROM public.access_event AS e WHERE e.at < older_than ORDER BY e.at, e.access_id LIMIT at_most);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION drop_access_events(timestamptz, integer) FROM PUBLIC;
