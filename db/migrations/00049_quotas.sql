-- +goose Up
SET LOCAL lock_timeout = '2s';

-- What a tenant may hold: the platform's defaults, and a tenant's own quotas where it has them. Triggers count what it holds and
-- refuse what would be too much, so that nothing that creates rows can forget it.
--
-- default_quota returns how many of a thing a tenant may hold without an exception. docs/operations.md says why so many.
-- +goose StatementBegin
CREATE FUNCTION default_quota(thing text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE thing
        WHEN 'plans' THEN 1000
        WHEN 'rules' THEN 10000
        WHEN 'overrides' THEN 100000
        WHEN 'users' THEN 1000000
        WHEN 'api_keys' THEN 1000
        WHEN 'alerts' THEN 100
        WHEN 'members' THEN 1000
    END::bigint
$$;
-- +goose StatementEnd

-- A tenant's exceptions; null is the default. Only the platform changes them: the tenant role may just read them.
CREATE TABLE tenant_quota (
    tenant_id  bigint      NOT NULL,
    plans      bigint,
    rules      bigint,
    overrides  bigint,
    users      bigint,
    api_keys   bigint,
    alerts     bigint,
    members    bigint,
    version    bigint      NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tenant_quota_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenant_quota_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT tenant_quota_range_check CHECK (
        least(plans, rules, overrides, users, api_keys, alerts, members) >= 0
        AND greatest(plans, rules, overrides, users, api_keys, alerts, members) <= 1000000000)
);

CREATE TRIGGER tenant_quota_audit AFTER INSERT OR UPDATE OR DELETE ON tenant_quota
    FOR EACH ROW EXECUTE FUNCTION audit_change('quotas', 'tenant_id');

-- How many of each thing a tenant holds. A row is made by the first write that needs it. Functions write it with the rights
-- of its owner, so that no program needs any.
CREATE TABLE tenant_use (
    tenant_id bigint NOT NULL,
    thing     text   NOT NULL COLLATE "C",
    held      bigint NOT NULL,
    CONSTRAINT tenant_use_pkey PRIMARY KEY (tenant_id, thing),
    CONSTRAINT tenant_use_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT tenant_use_held_check CHECK (held >= 0)
);

-- Keys that have not expired are counted by it.
CREATE INDEX api_key_live_idx ON api_key (tenant_id, expires_at) WHERE revoked_at IS NULL;

-- count_held counts rows, where no row of tenant_use has the number. Expired overrides count until they are removed.
-- +goose StatementBegin
CREATE FUNCTION count_held(of_tenant bigint, of_thing text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE of_thing
        WHEN 'plans' THEN (SELECT count(*) FROM plan AS p WHERE p.tenant_id = of_tenant AND p.removed_at IS NULL)
        WHEN 'rules' THEN (SELECT count(*) FROM rate_limit_rule AS r WHERE r.tenant_id = of_tenant AND r.removed_at IS NULL)
        WHEN 'overrides' THEN (SELECT count(*) FROM rate_limit_override AS o WHERE o.tenant_id = of_tenant AND o.removed_at IS NULL)
        WHEN 'users' THEN (SELECT coalesce(sum(u.users), 0)::bigint FROM plan_use AS u WHERE u.tenant_id = of_tenant)
        WHEN 'api_keys' THEN (SELECT count(*) FROM api_key AS k
            WHERE k.tenant_id = of_tenant AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()))
        WHEN 'alerts' THEN (SELECT count(*) FROM alert AS a WHERE a.tenant_id = of_tenant)
        WHEN 'members' THEN (SELECT count(*) FROM member AS m WHERE m.tenant_id = of_tenant)
    END
$$;
-- +goose StatementEnd

-- change_held notes that a tenant holds so many more of a thing, and refuses more than its quota. Less is never refused,
-- so a quota below what is held only stops growth. The row's lock makes the second of two writers see what the first has added.
-- +goose StatementBegin
CREATE FUNCTION change_held(of_tenant bigint, of_thing text, change bigint) RETURNS void
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
        UPDATE tenant_use AS u SET held = u.held + change
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

-- count_held_rows runs once for a statement on a table whose rows are marked removed. Its argument is the thing. A
-- transaction that writes many rows one by one runs count_held_later before and count_held_now after.
-- +goose StatementBegin
CREATE FUNCTION count_held_rows() RETURNS trigger
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    one record; -- of one tenant
BEGIN
    IF current_setting('sluice.count_held', true) = 'later' THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        FOR one IN
            SELECT n.tenant_id, count(*) AS change FROM new_rows AS n WHERE n.removed_at IS NULL GROUP BY n.tenant_id
        LOOP
            PERFORM change_held(one.tenant_id, TG_ARGV[0], one.change);
        END LOOP;
    ELSIF TG_OP = 'DELETE' THEN
        FOR one IN
            SELECT o.tenant_id, -count(*) AS change FROM old_rows AS o WHERE o.removed_at IS NULL GROUP BY o.tenant_id
        LOOP
            PERFORM change_held(one.tenant_id, TG_ARGV[0], one.change);
        END LOOP;
    ELSE
        FOR one IN
            SELECT rows.tenant_id, sum(rows.n)::bigint AS change FROM (
                SELECT n.tenant_id, 1 AS n FROM new_rows AS n WHERE n.removed_at IS NULL
                UNION ALL
                SELECT o.tenant_id, -1 FROM old_rows AS o WHERE o.removed_at IS NULL
            ) AS rows
            GROUP BY rows.tenant_id HAVING sum(rows.n) <> 0
        LOOP
            PERFORM change_held(one.tenant_id, TG_ARGV[0], one.change);
        END LOOP;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- count_held_row is for tables with few rows, whose rows are deleted.
-- +goose StatementBegin
CREATE FUNCTION count_held_row() RETURNS trigger
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM change_held(NEW.tenant_id, TG_ARGV[0], 1);
    ELSE
        PERFORM change_held(OLD.tenant_id, TG_ARGV[0], -1);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- count_held_later defers counting what files hold to count_held_now, which the transaction must run: each version of a
-- row that one transaction writes slows down the next.
-- +goose StatementBegin
CREATE FUNCTION count_held_later(of_tenant bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF of_tenant::text <> coalesce(current_setting('sluice.tenant', true), '') THEN
        RAISE EXCEPTION 'another tenant''s things' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO tenant_use (tenant_id, thing, held)
    SELECT of_tenant, t.thing, count_held(of_tenant, t.thing) FROM unnest('{plans,rules,overrides}'::text[]) AS t (thing)
    WHERE NOT EXISTS (SELECT FROM tenant_use AS u WHERE u.tenant_id = of_tenant AND u.thing = t.thing)
    ON CONFLICT DO NOTHING;
    PERFORM set_config('sluice.count_held', 'later', true);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION count_held_now(of_tenant bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    one record; -- of one tenant
BEGIN
    IF of_tenant::text <> coalesce(current_setting('sluice.tenant', true), '') THEN
        RAISE EXCEPTION 'another tenant''s things' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM set_config('sluice.count_held', '', true);
    FOR one IN
        SELECT u.thing, count_held(of_tenant, u.thing) - u.held AS change FROM tenant_use AS u
        WHERE u.tenant_id = of_tenant AND u.thing IN ('plans', 'rules', 'overrides') ORDER BY u.thing DESC
    LOOP
        PERFORM change_held(of_tenant, one.thing, one.change);
    END LOOP;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION change_held(bigint, text, bigint) FROM PUBLIC;

CREATE TRIGGER plan_within_quota_insert AFTER INSERT ON plan
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('plans');
CREATE TRIGGER plan_within_quota_update AFTER UPDATE ON plan
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('plans');
CREATE TRIGGER plan_within_quota_delete AFTER DELETE ON plan
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('plans');
CREATE TRIGGER rate_limit_rule_within_quota_insert AFTER INSERT ON rate_limit_rule
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('rules');
CREATE TRIGGER rate_limit_rule_within_quota_update AFTER UPDATE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('rules');
CREATE TRIGGER rate_limit_rule_within_quota_delete AFTER DELETE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('rules');
CREATE TRIGGER rate_limit_override_within_quota_insert AFTER INSERT ON rate_limit_override
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('overrides');
CREATE TRIGGER rate_limit_override_within_quota_update AFTER UPDATE ON rate_limit_override
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('overrides');
CREATE TRIGGER rate_limit_override_within_quota_delete AFTER DELETE ON rate_limit_override
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('overrides');
-- These run after those that keep plan_use, which triggers do in the order of their names.
CREATE TRIGGER plan_assignment_within_quota_insert AFTER INSERT ON plan_assignment
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('users');
CREATE TRIGGER plan_assignment_within_quota_update AFTER UPDATE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('users');
CREATE TRIGGER plan_assignment_within_quota_delete AFTER DELETE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('users');
CREATE TRIGGER api_key_within_quota AFTER INSERT ON api_key
    FOR EACH ROW EXECUTE FUNCTION count_held_row('api_keys');
CREATE TRIGGER alert_within_quota AFTER INSERT OR DELETE ON alert
    FOR EACH ROW EXECUTE FUNCTION count_held_row('alerts');
CREATE TRIGGER member_within_quota AFTER INSERT OR DELETE ON member
    FOR EACH ROW EXECUTE FUNCTION count_held_row('members');
