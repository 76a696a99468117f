-- +goose Up

-- Tenants get a version of their own, and can be removed. The default plan may be written after the
-- tenant that names it.
ALTER TABLE tenant
    ADD COLUMN version bigint NOT NULL DEFAULT 1,
    ADD COLUMN removed_at timestamptz,
    ALTER CONSTRAINT tenant_default_plan_fkey DEFERRABLE INITIALLY DEFERRED;

-- Lists that people page through, whatever was removed.
CREATE INDEX rate_limit_rule_list_idx ON rate_limit_rule (tenant_id, rule_id) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_rule_matrix_idx ON rate_limit_rule (tenant_id, key_pattern, name) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_override_user_idx ON rate_limit_override (tenant_id, user_id, rule_id) WHERE removed_at IS NULL;
DROP INDEX tenant_user_plan_idx;
CREATE INDEX tenant_user_plan_idx ON tenant_user (tenant_id, plan, user_id) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_override_list_idx ON rate_limit_override (tenant_id, rule_id, user_id) WHERE removed_at IS NULL;
CREATE INDEX tenant_user_list_idx ON tenant_user (tenant_id, user_id) WHERE removed_at IS NULL;
CREATE INDEX api_key_created_at_idx ON api_key (tenant_id, created_at, key_id);

-- What happened to the objects of a tenant, written by triggers in the transaction of the change: bulk
-- writes and statements by hand included. It can be added to and read, and nothing else.
CREATE TABLE audit_event (
    tenant_id   bigint      NOT NULL,
    audit_id    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL,
    actor_kind  text        NOT NULL,
    actor_id    text        NOT NULL COLLATE "C",
    actor_name  text        NOT NULL,
    act         text        NOT NULL,
    request_id  text        NOT NULL,
    action      text        NOT NULL,
    object_kind text        NOT NULL COLLATE "C",
    object_id   text        NOT NULL COLLATE "C",
    change_id   bigint      NOT NULL, -- the audit_id of the first entry of the same transaction
    before      jsonb, -- null: there was none
    after       jsonb,
    CONSTRAINT audit_event_pkey PRIMARY KEY (tenant_id, audit_id),
    CONSTRAINT audit_event_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT audit_event_action_check CHECK (action IN ('create', 'update', 'remove', 'reset', 'credit'))
);

CREATE INDEX audit_event_at_idx ON audit_event (tenant_id, at, audit_id);
CREATE INDEX audit_event_actor_idx ON audit_event (tenant_id, actor_id, at, audit_id);
CREATE INDEX audit_event_kind_idx ON audit_event (tenant_id, object_kind, at, audit_id);
CREATE INDEX audit_event_object_idx ON audit_event (tenant_id, object_kind, object_id, at, audit_id);
CREATE INDEX audit_event_change_idx ON audit_event (tenant_id, change_id, at, audit_id);

-- +goose StatementBegin
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log can only be added to' USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER audit_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- audit_actor is the setting sluice.actor, which every write sets for its transaction: {"kind", "id", "name",
-- "act", "request_id"}. Without it a change is the database user's.
CREATE FUNCTION audit_actor() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('sluice.actor', true), '')::jsonb,
        jsonb_build_object('kind', 'system', 'id', session_user, 'name', 'database'))
$$;

-- write_audit adds an entry in the name of audit_actor. The first entry's id is kept in the setting
-- sluice.change for the entries that follow.
-- +goose StatementBegin
CREATE FUNCTION write_audit(tenant_id bigint, action text, object_kind text, object_id text, before jsonb, after jsonb)
    RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    actor     jsonb  := audit_actor();
    audit_id  bigint := nextval('audit_event_audit_id_seq');
    change_id bigint := nullif(current_setting('sluice.change', true), '');
BEGIN
    IF change_id IS NULL THEN
        change_id := audit_id;
        PERFORM set_config('sluice.change', change_id::text, true);
    END IF;
    INSERT INTO audit_event OVERRIDING SYSTEM VALUE VALUES (
        tenant_id, audit_id, clock_timestamp(), coalesce(actor->>'kind', ''), coalesce(actor->>'id', ''),
        coalesce(actor->>'name', ''), coalesce(actor->>'act', ''), coalesce(actor->>'request_id', ''),
        action, object_kind, object_id, change_id, before, after);
    RETURN audit_id;
END
$$;
-- +goose StatementEnd

-- audit_images is what the log says of a change from one row to another; null is no row.
--
-- A row that is marked removed or revoked is gone: marking it is "remove", and taking the mark away
-- "create". A change of bookkeeping alone is none. Secrets never reach the log, although that one
-- changed does. Here and below OFFSET 0 keeps the planner from computing an image once for each of its uses.
CREATE FUNCTION audit_images(old_row jsonb, new_row jsonb)
    RETURNS TABLE (action text, before jsonb, after jsonb) LANGUAGE sql IMMUTABLE AS $$
    SELECT
        CASE WHEN i.before IS NULL THEN 'create' WHEN i.after IS NULL THEN 'remove' ELSE 'update' END,
        i.before - '{tenant_id,removed_at,revoked_at,digest,token_digest,password_hash,secret}'::text[],
        i.after - '{tenant_id,removed_at,revoked_at,digest,token_digest,password_hash,secret}'::text[]
    FROM (
        SELECT
            CASE WHEN coalesce(old_row->>'removed_at', old_row->>'revoked_at') IS NULL THEN old_row END AS before,
            CASE WHEN coalesce(new_row->>'removed_at', new_row->>'revoked_at') IS NULL THEN new_row END AS after
        OFFSET 0
    ) AS i
    WHERE coalesce(i.before, i.after) IS NOT NULL
        AND old_row - '{revision,version,updated_at,last_used_at,last_seen_at}'::text[]
            IS DISTINCT FROM new_row - '{revision,version,updated_at,last_used_at,last_seen_at}'::text[]
$$;

-- audit_change writes what happened to a row of a tenant. Its arguments are the kind of object, and the
-- columns that make the object's id, joined by colons: audit_change('override', 'rule_id', 'user_id').
-- +goose StatementBegin
CREATE FUNCTION audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
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
        PERFORM write_audit((object->>'tenant_id')::bigint, change.action, TG_ARGV[0], array_to_string(keys, ':'),
            change.before, change.after);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- audit_changes is audit_change for the tables that have many rows written at once: it works once for a
-- statement, which takes a third of the time (41 µs a row and not 156, on a busy machine with two cores).
-- Its argument is the kind of object, whose id is the rule, if it has one, and the user. Deletions, which no
-- program makes, are left to audit_change.
-- +goose StatementBegin
CREATE FUNCTION audit_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    actor    jsonb  := audit_actor();
    change   bigint := nullif(current_setting('sluice.change', true), '');
    first_id bigint; -- of the transaction
BEGIN
    IF NOT EXISTS (SELECT FROM new_rows) THEN
        RETURN NULL;
    END IF;
    IF change IS NULL THEN
        first_id := nextval('audit_event_audit_id_seq');
        change := first_id;
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO audit_event OVERRIDING SYSTEM VALUE
        SELECT
            r.tenant_id,
            CASE WHEN row_number() OVER () = 1 AND first_id IS NOT NULL THEN first_id ELSE nextval('audit_event_audit_id_seq') END,
            clock_timestamp(), coalesce(actor->>'kind', ''), coalesce(actor->>'id', ''), coalesce(actor->>'name', ''),
            coalesce(actor->>'act', ''), coalesce(actor->>'request_id', ''),
            i.action, TG_ARGV[0], r.object_id, change, i.before, i.after
        FROM (
            SELECT n.tenant_id, concat_ws(':', to_jsonb(n)->>'rule_id', n.user_id) AS object_id, to_jsonb(n) AS image
            FROM new_rows AS n OFFSET 0
        ) AS r
        CROSS JOIN LATERAL audit_images(NULL, r.image) AS i;
    ELSE
        INSERT INTO audit_event OVERRIDING SYSTEM VALUE
        SELECT
            tenant_id,
            CASE WHEN row_number() OVER () = 1 AND first_id IS NOT NULL THEN first_id ELSE nextval('audit_event_audit_id_seq') END,
            clock_timestamp(), coalesce(actor->>'kind', ''), coalesce(actor->>'id', ''), coalesce(actor->>'name', ''),
            coalesce(actor->>'act', ''), coalesce(actor->>'request_id', ''),
            i.action, TG_ARGV[0], object_id, change, i.before, i.after
        FROM (
            SELECT o.tenant_id, concat_ws(':', to_jsonb(o)->>'rule_id', o.user_id) AS object_id, to_jsonb(o) AS image
            FROM old_rows AS o OFFSET 0
        ) AS was
        FULL JOIN (
            SELECT n.tenant_id, concat_ws(':', to_jsonb(n)->>'rule_id', n.user_id) AS object_id, to_jsonb(n) AS image
            FROM new_rows AS n OFFSET 0
        ) AS becomes USING (tenant_id, object_id)
        CROSS JOIN LATERAL audit_images(was.image, becomes.image) AS i;
    END IF;
    IF FOUND AND first_id IS NOT NULL THEN
        PERFORM set_config('sluice.change', change::text, true);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER tenant_audit AFTER INSERT OR UPDATE OR DELETE ON tenant
    FOR EACH ROW EXECUTE FUNCTION audit_change('tenant', 'slug');
CREATE TRIGGER plan_audit AFTER INSERT OR UPDATE OR DELETE ON plan
    FOR EACH ROW EXECUTE FUNCTION audit_change('plan', 'name');
CREATE TRIGGER rate_limit_rule_audit AFTER INSERT OR UPDATE OR DELETE ON rate_limit_rule
    FOR EACH ROW EXECUTE FUNCTION audit_change('rule', 'rule_id');
CREATE TRIGGER rate_limit_override_audit_insert AFTER INSERT ON rate_limit_override
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('override');
CREATE TRIGGER rate_limit_override_audit_update AFTER UPDATE ON rate_limit_override
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('override');
CREATE TRIGGER rate_limit_override_audit_delete AFTER DELETE ON rate_limit_override
    FOR EACH ROW EXECUTE FUNCTION audit_change('override', 'rule_id', 'user_id');
CREATE TRIGGER tenant_user_audit_insert AFTER INSERT ON tenant_user
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('user');
CREATE TRIGGER tenant_user_audit_update AFTER UPDATE ON tenant_user
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('user');
CREATE TRIGGER tenant_user_audit_delete AFTER DELETE ON tenant_user
    FOR EACH ROW EXECUTE FUNCTION audit_change('user', 'user_id');
CREATE TRIGGER api_key_audit AFTER INSERT OR UPDATE OR DELETE ON api_key
    FOR EACH ROW EXECUTE FUNCTION audit_change('api_key', 'key_id');
CREATE TRIGGER member_audit AFTER INSERT OR UPDATE OR DELETE ON member
    FOR EACH ROW EXECUTE FUNCTION audit_change('member', 'account_id');
CREATE TRIGGER invitation_audit AFTER INSERT OR UPDATE OR DELETE ON invitation
    FOR EACH ROW EXECUTE FUNCTION audit_change('invitation', 'invitation_id');

-- How many rules name a plan and how many users are on it, kept by triggers, because counting a million
-- users takes long. A row stays when both are 0.
CREATE TABLE plan_use (
    tenant_id bigint NOT NULL,
    plan      text   NOT NULL COLLATE "C",
    rules     bigint NOT NULL DEFAULT 0,
    users     bigint NOT NULL DEFAULT 0,
    CONSTRAINT plan_use_pkey PRIMARY KEY (tenant_id, plan),
    CONSTRAINT plan_use_plan_fkey FOREIGN KEY (tenant_id, plan) REFERENCES plan (tenant_id, name),
    CONSTRAINT plan_use_rules_check CHECK (rules >= 0),
    CONSTRAINT plan_use_users_check CHECK (users >= 0)
);

-- count_plan_use works once for a statement: a million users who change plans are two sums. A
-- transaction that writes rules one by one sets sluice.count_rules to 'later' and runs count_rules at
-- its end, because each version of a row that one transaction writes makes the next one slower.
-- +goose StatementBegin
CREATE FUNCTION count_plan_use() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    a_rule CONSTANT bigint := (TG_TABLE_NAME = 'rate_limit_rule')::int;
    a_user CONSTANT bigint := 1 - a_rule;
BEGIN
    IF a_rule = 1 AND current_setting('sluice.count_rules', true) = 'later' THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        UPDATE plan_use AS u
        SET rules = u.rules - gone.n * a_rule, users = u.users - gone.n * a_user
        FROM (
            SELECT o.tenant_id, o.plan, count(*) AS n FROM old_rows AS o
            WHERE o.removed_at IS NULL AND o.plan IS NOT NULL
            GROUP BY o.tenant_id, o.plan
        ) AS gone
        WHERE u.tenant_id = gone.tenant_id AND u.plan = gone.plan;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO plan_use AS u (tenant_id, plan, rules, users)
        SELECT n.tenant_id, n.plan, count(*) * a_rule, count(*) * a_user FROM new_rows AS n
        WHERE n.removed_at IS NULL AND n.plan IS NOT NULL
        GROUP BY n.tenant_id, n.plan
        ON CONFLICT (tenant_id, plan) DO UPDATE SET rules = u.rules + excluded.rules, users = u.users + excluded.users;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER rate_limit_rule_inserted AFTER INSERT ON rate_limit_rule
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER rate_limit_rule_updated AFTER UPDATE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER rate_limit_rule_deleted AFTER DELETE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER tenant_user_inserted AFTER INSERT ON tenant_user
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER tenant_user_updated AFTER UPDATE ON tenant_user
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER tenant_user_deleted AFTER DELETE ON tenant_user
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();

-- When a key was last used, to the minute. Apart from api_key, whose rows checks depend on: being used
-- is no change of a key.
CREATE TABLE api_key_use (
    tenant_id    bigint      NOT NULL,
    key_id       text        NOT NULL COLLATE "C",
    last_used_at timestamptz NOT NULL,
    CONSTRAINT api_key_use_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_key_use_key_fkey FOREIGN KEY (tenant_id, key_id) REFERENCES api_key (tenant_id, key_id)
);

INSERT INTO plan_use (tenant_id, plan, rules, users)
SELECT tenant_id, plan, sum(rules), sum(users)
FROM (
    SELECT tenant_id, plan, count(*) AS rules, 0 AS users FROM rate_limit_rule
    WHERE removed_at IS NULL AND plan IS NOT NULL GROUP BY tenant_id, plan
    UNION ALL
    SELECT tenant_id, plan, 0, count(*) FROM tenant_user WHERE removed_at IS NULL GROUP BY tenant_id, plan
) AS counted
GROUP BY tenant_id, plan;

-- What happened to accounts, and that tenants came, were suspended and went: what no tenant's log has, or
-- nobody can read there any more. Written as audit_event is.
CREATE TABLE platform_audit_event (
    audit_id    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor_kind  text        NOT NULL,
    actor_id    text        NOT NULL COLLATE "C",
    actor_name  text        NOT NULL,
    act         text        NOT NULL,
    request_id  text        NOT NULL,
    action      text        NOT NULL,
    object_kind text        NOT NULL COLLATE "C",
    object_id   text        NOT NULL COLLATE "C",
    before      jsonb,
    after       jsonb,
    CONSTRAINT platform_audit_event_pkey PRIMARY KEY (audit_id),
    CONSTRAINT platform_audit_event_action_check CHECK (action IN ('create', 'update', 'remove'))
);

CREATE TRIGGER platform_audit_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON platform_audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- audit_platform_change writes what happened to a row of no tenant. Its arguments are the kind of object and
-- the column of its id. Of a password hash it says that it changed.
-- +goose StatementBegin
CREATE FUNCTION audit_platform_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hidden CONSTANT text[] := '{revision,version,updated_at,password_hash}';
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
    IF before->>'removed_at' IS NULL AND after->>'removed_at' IS NOT NULL THEN
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

CREATE TRIGGER account_platform_audit AFTER INSERT OR UPDATE OR DELETE ON account
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('account', 'account_id');
CREATE TRIGGER tenant_platform_audit_created AFTER INSERT OR DELETE ON tenant
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('tenant', 'slug');
CREATE TRIGGER tenant_platform_audit AFTER UPDATE ON tenant FOR EACH ROW
    WHEN (OLD.suspended_at IS DISTINCT FROM NEW.suspended_at OR OLD.removed_at IS DISTINCT FROM NEW.removed_at)
    EXECUTE FUNCTION audit_platform_change('tenant', 'slug');
