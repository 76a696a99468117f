-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The release before writes neither where a key may be used nor who made it.
ALTER TABLE api_key ADD COLUMN networks cidr[] NOT NULL DEFAULT '{}';
ALTER TABLE api_key ADD COLUMN created_by_kind text NOT NULL DEFAULT '';
ALTER TABLE api_key ADD COLUMN created_by_id text NOT NULL DEFAULT '' COLLATE "C";
ALTER TABLE api_key ADD COLUMN created_by_name text NOT NULL DEFAULT '';
ALTER TABLE api_key ADD CONSTRAINT api_key_networks_check CHECK (cardinality(networks) <= 50);
ALTER TABLE api_key DROP CONSTRAINT api_key_permissions_check;
ALTER TABLE api_key ADD CONSTRAINT api_key_permissions_check CHECK (permissions <@ ARRAY[
    'check', 'explain', 'refund', 'report', 'read', 'rules', 'users', 'settings', 'members', 'keys', 'alerts', 'manage']);

-- Keys of the platform: they belong to no tenant, and only the admin API knows them.
CREATE TABLE service_key (
    key_id          text        NOT NULL COLLATE "C",
    name            text        NOT NULL,
    digest          bytea       NOT NULL, -- SHA-256 of the secret
    permissions     text[]      NOT NULL,
    networks        cidr[]      NOT NULL DEFAULT '{}',
    expires_at      timestamptz, -- null: never
    revoked_at      timestamptz,
    last_used_at    timestamptz, -- to the minute
    created_by_kind text        NOT NULL,
    created_by_id   text        NOT NULL COLLATE "C",
    created_by_name text        NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT service_key_pkey PRIMARY KEY (key_id),
    CONSTRAINT service_key_key_id_check CHECK (key_id ~ '^svc[0-9a-f]{16}$'),
    CONSTRAINT service_key_name_check CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT service_key_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT service_key_networks_check CHECK (cardinality(networks) <= 50),
    CONSTRAINT service_key_permissions_check CHECK (permissions <@ ARRAY[
        'read', 'rules', 'users', 'settings', 'members', 'keys', 'alerts', 'manage', 'tenants', 'accounts'])
);

CREATE INDEX service_key_created_at_idx ON service_key (created_at, key_id);

-- The digest of a key, and when it was last used, are hidden too.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_platform_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hidden CONSTANT text[] := '{revision,version,updated_at,password_hash,digest,last_used_at}';
    actor  jsonb := coalesce(nullif(current_setting('sluice.actor', true), '')::jsonb,
        jsonb_build_object('kind', 'system', 'id', session_user, 'name', 'database'));
    before jsonb;
    after  jsonb;
    object jsonb;
    action text := CASE TG_OP WHEN 'INSERT' THEN 'create' WHEN 'UPDATE' THEN 'update' ELSE 'remove' END;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        before := to_jsonb(OLD) - hidden;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        after := to_jsonb(NEW) - hidden;
    END IF;
    object := coalesce(after, before);
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD)->'password_hash' IS DISTINCT FROM to_jsonb(NEW)->'password_hash' THEN
        after := after || '{"password_hash_changed": true}';
    END IF;
    IF before = after THEN
        RETURN NULL;
    END IF;
    IF before->>'removed_at' IS NULL AND after->>'removed_at' IS NOT NULL
        OR before->>'revoked_at' IS NULL AND after->>'revoked_at' IS NOT NULL THEN
        action := 'remove';
        after := NULL;
    END IF;
    INSERT INTO platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id, before, after)
    VALUES (coalesce(actor->>'kind', ''), coalesce(actor->>'id', ''), coalesce(actor->>'name', ''), coalesce(actor->>'act', ''),
        coalesce(actor->>'request_id', ''), action, TG_ARGV[0], object->>TG_ARGV[1], before, after);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER service_key_platform_audit AFTER INSERT OR UPDATE OR DELETE ON service_key
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('service_key', 'key_id');
