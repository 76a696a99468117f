-- +goose Up
-- +goose StatementBegin
SET LOCAL lock_timeout = '2s';

-- The database of Sluice.
--
-- The keys of everything that a tenant owns begin with tenant_id, and foreign keys are composite, so that no row can
-- point at another tenant's.
--
-- A row that a check depends on has its tenant's revision at its last write, and is marked removed instead of deleted.
-- A poll reads newer rows by each such table's index on (tenant_id, revision, key). Every write transaction first
-- raises tenant.revision. That locks the row, so a tenant's writers commit in the order of their revisions, and a
-- reader that has seen a revision has seen all before it.
--
-- Identifiers and patterns are compared byte for byte, hence COLLATE "C".

-- moment_after returns the present time, or just after the latest of earlier moments. The later of two limits for one
-- bucket holds, so a clock that steps back must not make a new limit look old.
CREATE FUNCTION moment_after(earlier timestamptz[]) RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN (SELECT greatest(clock_timestamp(), max(moment) + interval '1 microsecond') FROM unnest(earlier) AS moment);

-- if_passed returns null for an expiry that no process, whose clock may be a minute ahead, may have acted on.
CREATE FUNCTION if_passed(expires_at timestamptz) RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN CASE WHEN expires_at <= clock_timestamp() + interval '1 minute' THEN expires_at END;

CREATE TABLE tenant (
    tenant_id            bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    slug                 text        NOT NULL COLLATE "C",
    name                 text        NOT NULL,
    default_plan         text        COLLATE "C", -- of users without an assignment; null for none
    suspended_at         timestamptz,
    enforcement          text        NOT NULL DEFAULT 'on', -- shadow: every rule acts as a shadow rule
    retry_jitter_percent smallint    NOT NULL DEFAULT 0,
    ipv4_prefix          smallint    NOT NULL DEFAULT 32,
    ipv6_prefix          smallint    NOT NULL DEFAULT 64,
    failure_mode         text        NOT NULL DEFAULT 'local',
    revision             bigint      NOT NULL DEFAULT 1,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now(),
    version              bigint      NOT NULL DEFAULT 1, -- of the tenant itself
    removed_at           timestamptz, -- for good; the slug stays taken
    fixed_rates          boolean     NOT NULL DEFAULT false, -- no rule adapts
    record_days          smallint    NOT NULL DEFAULT 0, -- how many days of checks are recorded for replays; 0 for none
    require_second_factor boolean    NOT NULL DEFAULT false, -- of accounts, to reach the tenant
    CONSTRAINT tenant_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenant_slug_key UNIQUE (slug),
    CONSTRAINT tenant_slug_check CHECK (slug ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    CONSTRAINT tenant_name_check CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT tenant_enforcement_check CHECK (enforcement IN ('on', 'shadow')),
    CONSTRAINT tenant_retry_jitter_percent_check CHECK (retry_jitter_percent BETWEEN 0 AND 50),
    CONSTRAINT tenant_ipv4_prefix_check CHECK (ipv4_prefix BETWEEN 0 AND 32),
    CONSTRAINT tenant_ipv6_prefix_check CHECK (ipv6_prefix BETWEEN 0 AND 128),
    CONSTRAINT tenant_failure_mode_check CHECK (failure_mode IN ('local', 'open', 'closed')),
    CONSTRAINT tenant_record_days_check CHECK (record_days BETWEEN 0 AND 30)
);

-- Rules, users, checks and files name a plan. Creating a removed plan again revives its row.
CREATE TABLE plan (
    tenant_id   bigint      NOT NULL,
    name        text        NOT NULL COLLATE "C",
    description text        NOT NULL DEFAULT '',
    revision    bigint      NOT NULL,
    removed_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    position    double precision NOT NULL DEFAULT 0, -- of its column in the matrix; ties go by name
    CONSTRAINT plan_pkey PRIMARY KEY (tenant_id, name),
    CONSTRAINT plan_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT plan_name_check CHECK (octet_length(name) BETWEEN 1 AND 64)
);

CREATE INDEX plan_revision_idx ON plan (tenant_id, revision, name);

ALTER TABLE tenant
    ADD CONSTRAINT tenant_default_plan_fkey FOREIGN KEY (tenant_id, default_plan) REFERENCES plan (tenant_id, name)
    DEFERRABLE INITIALLY DEFERRED; -- the plan may be written after the tenant

-- An id is never used again, so that no rule inherits a removed one's buckets.
CREATE TABLE rate_limit_rule (
    tenant_id       bigint           NOT NULL,
    rule_id         bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    name            text             NOT NULL DEFAULT '' COLLATE "C",
    key_pattern     text             NOT NULL COLLATE "C", -- in its canonical form
    scope           text             NOT NULL, -- the pattern's first segment, to filter by
    plan            text             COLLATE "C", -- null for all plans
    rate_per_second double precision NOT NULL,
    rate_unit       text             NOT NULL, -- as people typed the rate; means nothing to a check
    burst_capacity  bigint           NOT NULL,
    algorithm       text             NOT NULL,
    mode            text             NOT NULL,
    action          text             NOT NULL,
    failure_mode    text, -- null for the tenant's
    is_active       boolean          NOT NULL,
    description     text             NOT NULL DEFAULT '',
    version         bigint           NOT NULL DEFAULT 1,
    in_force_since  timestamptz      NOT NULL, -- of the present limit; see moment_after
    revision        bigint           NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz      NOT NULL DEFAULT now(),
    updated_at      timestamptz      NOT NULL DEFAULT now(),
    -- the other chosen fields, in the API's names and words; see rules.Fields
    parameters      jsonb            NOT NULL DEFAULT '{}',
    candidate_for   bigint, -- the rule that this shadow rule is tried for
    expires_at      timestamptz, -- from then on the rule matches nothing; null for never
    CONSTRAINT rate_limit_rule_pkey PRIMARY KEY (tenant_id, rule_id),
    CONSTRAINT rate_limit_rule_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT rate_limit_rule_plan_fkey FOREIGN KEY (tenant_id, plan) REFERENCES plan (tenant_id, name),
    CONSTRAINT rate_limit_rule_name_check CHECK (char_length(name) <= 64),
    CONSTRAINT rate_limit_rule_key_pattern_check CHECK (octet_length(key_pattern) BETWEEN 1 AND 512),
    CONSTRAINT rate_limit_rule_scope_check CHECK (scope IN ('user', 'endpoint', 'global', 'ip')),
    CONSTRAINT rate_limit_rule_rate_unit_check CHECK (rate_unit IN ('second', 'minute', 'hour', 'day')),
    CONSTRAINT rate_limit_rule_algorithm_check CHECK (algorithm IN (
        'token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log', 'concurrency')),
    CONSTRAINT rate_limit_rule_mode_check CHECK (mode IN ('enforce', 'shadow')),
    CONSTRAINT rate_limit_rule_action_check CHECK (action IN ('limit', 'block', 'bypass')),
    CONSTRAINT rate_limit_rule_bypass_check CHECK (action <> 'bypass' OR mode = 'enforce'),
    CONSTRAINT rate_limit_rule_failure_mode_check CHECK (failure_mode IN ('local', 'open', 'closed')),
    CONSTRAINT rate_limit_rule_rate_check CHECK (
        rate_per_second BETWEEN 0 AND 1e9 AND (action <> 'limit' OR CASE
            WHEN algorithm IN ('token_bucket', 'leaky_bucket') THEN rate_per_second >= 1e-6
                ELSE rate_per_second = 0 END)),
    CONSTRAINT rate_limit_rule_burst_check CHECK (
        burst_capacity BETWEEN 0 AND 1000000000 AND (action <> 'limit' OR burst_capacity >= 1)),
    CONSTRAINT rate_limit_rule_listed_check CHECK (
        action <> 'limit' OR algorithm NOT IN ('sliding_window_log', 'concurrency') OR burst_capacity <= 1000),
    -- At most a year to fill; one second more, so that rounding does not refuse what the domain accepts.
    CONSTRAINT rate_limit_rule_time_to_full_check CHECK (
        action <> 'limit' OR rate_per_second = 0 OR burst_capacity <= rate_per_second * 31536001),
    CONSTRAINT rate_limit_rule_parameters_check CHECK (
        jsonb_typeof(parameters) = 'object'
        AND (parameters ? 'window') =
            (action = 'limit' AND algorithm IN ('fixed_window', 'sliding_window', 'sliding_window_log'))
        AND (parameters ? 'max_hold') = (action = 'limit' AND algorithm = 'concurrency')
        AND CASE WHEN action <> 'limit'
            THEN NOT parameters ?| '{window_zone,window_start_day,refill_interval,notify_at,adapt}'
            WHEN algorithm = 'fixed_window' THEN NOT parameters ?| '{refill_interval,adapt}'
            WHEN algorithm = 'token_bucket' THEN NOT parameters ?| '{window_zone,window_start_day,notify_at}'
            WHEN algorithm = 'leaky_bucket'
                THEN NOT parameters ?| '{window_zone,window_start_day,refill_interval,notify_at}'
            ELSE NOT parameters ?| '{window_zone,window_start_day,refill_interval,notify_at,adapt}' END)
);

CREATE UNIQUE INDEX rate_limit_rule_identity_key ON rate_limit_rule (tenant_id, key_pattern, plan, name)
    NULLS NOT DISTINCT WHERE removed_at IS NULL;
CREATE INDEX rate_limit_rule_pattern_idx ON rate_limit_rule (tenant_id, key_pattern, rule_id);
CREATE INDEX rate_limit_rule_revision_idx ON rate_limit_rule (tenant_id, revision, rule_id);
CREATE INDEX rate_limit_rule_plan_idx ON rate_limit_rule (tenant_id, plan) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_rule_list_idx ON rate_limit_rule (tenant_id, rule_id) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_rule_matrix_idx ON rate_limit_rule (tenant_id, key_pattern, name) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_rule_adapt_idx ON rate_limit_rule (tenant_id, rule_id)
    WHERE parameters ? 'adapt' AND removed_at IS NULL;
CREATE INDEX rate_limit_rule_meter_idx ON rate_limit_rule (tenant_id, (parameters ->> 'meter'))
    WHERE parameters ? 'meter' AND removed_at IS NULL;
CREATE UNIQUE INDEX rate_limit_rule_candidate_key ON rate_limit_rule (tenant_id, candidate_for)
    WHERE candidate_for IS NOT NULL AND removed_at IS NULL;
CREATE INDEX rate_limit_rule_end_idx ON rate_limit_rule (tenant_id, expires_at)
    WHERE expires_at IS NOT NULL AND removed_at IS NULL;

-- A removed override keeps its row, because its end is when the rule's own limit holds again.
CREATE TABLE rate_limit_override (
    tenant_id       bigint           NOT NULL,
    rule_id         bigint           NOT NULL,
    user_id         text             NOT NULL COLLATE "C",
    rate_per_second double precision NOT NULL,
    rate_unit       text             NOT NULL,
    burst_capacity  bigint           NOT NULL,
    reason          text             NOT NULL DEFAULT '',
    expires_at      timestamptz, -- null: never
    in_force_since  timestamptz      NOT NULL,
    revision        bigint           NOT NULL,
    removed_at      timestamptz,
    created_at      timestamptz      NOT NULL DEFAULT now(),
    updated_at      timestamptz      NOT NULL DEFAULT now(),
    CONSTRAINT rate_limit_override_pkey PRIMARY KEY (tenant_id, rule_id, user_id),
    CONSTRAINT rate_limit_override_rule_fkey FOREIGN KEY (tenant_id, rule_id)
        REFERENCES rate_limit_rule (tenant_id, rule_id),
    CONSTRAINT rate_limit_override_user_id_check CHECK (octet_length(user_id) BETWEEN 1 AND 256),
    CONSTRAINT rate_limit_override_rate_unit_check CHECK (rate_unit IN ('second', 'minute', 'hour', 'day')),
    CONSTRAINT rate_limit_override_rate_check CHECK (rate_per_second = 0 OR rate_per_second BETWEEN 1e-6 AND 1e9),
    CONSTRAINT rate_limit_override_burst_check CHECK (burst_capacity BETWEEN 1 AND 1000000000),
    CONSTRAINT rate_limit_override_time_to_full_check CHECK (
        rate_per_second = 0 OR burst_capacity <= rate_per_second * 31536001),
    -- An end before the beginning would leave buckets on the limit that should have ended.
    CONSTRAINT rate_limit_override_expires_at_check CHECK (expires_at > in_force_since),
    CONSTRAINT rate_limit_override_removed_at_check CHECK (removed_at > in_force_since)
);

CREATE INDEX rate_limit_override_revision_idx ON rate_limit_override (tenant_id, revision, rule_id, user_id);
CREATE INDEX rate_limit_override_list_idx ON rate_limit_override (tenant_id, rule_id, user_id) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_override_user_idx ON rate_limit_override (tenant_id, user_id, rule_id) WHERE removed_at IS NULL;
CREATE INDEX rate_limit_override_ever_idx ON rate_limit_override (tenant_id, user_id, rule_id);
CREATE INDEX rate_limit_override_end_idx ON rate_limit_override (tenant_id, expires_at, rule_id, user_id)
    WHERE removed_at IS NULL AND expires_at IS NOT NULL;
CREATE INDEX rate_limit_override_removed_idx ON rate_limit_override (removed_at) WHERE removed_at IS NOT NULL;

-- The share of its rate that a rule which adapts has for now. Steps end by themselves. The last one keeps its row,
-- because its end is when the rule's own limit holds again.
CREATE TABLE rate_limit_step (
    tenant_id      bigint      NOT NULL,
    rule_id        bigint      NOT NULL,
    percent        smallint    NOT NULL, -- of the rule's rate
    stepped_at     timestamptz NOT NULL, -- when percent changed
    in_force_since timestamptz NOT NULL, -- when the row was written; see moment_after
    ends_at        timestamptz NOT NULL,
    cause          text        NOT NULL, -- for people
    memory         text        NOT NULL, -- the control loop's, in JSON
    revision       bigint      NOT NULL,
    CONSTRAINT rate_limit_step_pkey PRIMARY KEY (tenant_id, rule_id),
    CONSTRAINT rate_limit_step_rule_fkey FOREIGN KEY (tenant_id, rule_id)
        REFERENCES rate_limit_rule (tenant_id, rule_id),
    CONSTRAINT rate_limit_step_percent_check CHECK (percent BETWEEN 1 AND 100),
    CONSTRAINT rate_limit_step_ends_at_check CHECK (ends_at > in_force_since)
);

CREATE INDEX rate_limit_step_revision_idx ON rate_limit_step (tenant_id, revision, rule_id);
CREATE INDEX rate_limit_step_ends_at_idx ON rate_limit_step (ends_at);

CREATE UNLOGGED TABLE backend_report (
    tenant_id bigint      NOT NULL,
    backend   text        NOT NULL COLLATE "C",
    slice     timestamptz NOT NULL, -- its beginning
    requests  bigint      NOT NULL,
    errors    bigint      NOT NULL,
    latency   bigint[]    NOT NULL, -- requests by latency; see the package adapt
    CONSTRAINT backend_report_pkey PRIMARY KEY (tenant_id, backend, slice)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);

CREATE INDEX backend_report_slice_idx ON backend_report (slice);

CREATE FUNCTION add_counts(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(coalesce(u.a, 0) + coalesce(u.b, 0) ORDER BY u.place)
        FROM unnest(a, b) WITH ORDINALITY AS u (a, b, place)
$$;

-- The process that does work which one process does at a time; when its row ends, another takes over.
CREATE TABLE leader (
    role    text        NOT NULL COLLATE "C",
    holder  text        NOT NULL COLLATE "C",
    ends_at timestamptz NOT NULL,
    CONSTRAINT leader_pkey PRIMARY KEY (role)
);

-- Users without a row are on their tenant's default plan.
CREATE TABLE plan_assignment (
    tenant_id  bigint      NOT NULL,
    user_id    text        NOT NULL COLLATE "C",
    plan       text        NOT NULL COLLATE "C",
    revision   bigint      NOT NULL,
    removed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT plan_assignment_pkey PRIMARY KEY (tenant_id, user_id),
    CONSTRAINT plan_assignment_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT plan_assignment_plan_fkey FOREIGN KEY (tenant_id, plan) REFERENCES plan (tenant_id, name),
    CONSTRAINT plan_assignment_user_id_check CHECK (octet_length(user_id) BETWEEN 1 AND 256)
);

CREATE INDEX plan_assignment_revision_idx ON plan_assignment (tenant_id, revision, user_id);
CREATE INDEX plan_assignment_list_idx ON plan_assignment (tenant_id, user_id) WHERE removed_at IS NULL;
CREATE INDEX plan_assignment_plan_idx ON plan_assignment (tenant_id, plan, user_id) WHERE removed_at IS NULL;
CREATE INDEX plan_assignment_removed_idx ON plan_assignment (removed_at) WHERE removed_at IS NOT NULL;

-- For each kind of gateway, the mapping of a request to a check. Writing a removed one again revives its row.
CREATE TABLE gateway (
    tenant_id  bigint      NOT NULL,
    kind       text        NOT NULL COLLATE "C", -- authorize: proxies that ask over HTTP; descriptors: over gRPC
    document   jsonb       NOT NULL, -- see the package gateway
    revision   bigint      NOT NULL,
    removed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT gateway_pkey PRIMARY KEY (tenant_id, kind),
    CONSTRAINT gateway_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT gateway_kind_check CHECK (kind IN ('authorize', 'descriptors')),
    CONSTRAINT gateway_document_check CHECK (jsonb_typeof(document) = 'object')
);

CREATE INDEX gateway_revision_idx ON gateway (tenant_id, revision, kind);

-- An API key names its tenant, so its id is unique among all tenants. The secret is never stored.
CREATE TABLE api_key (
    tenant_id   bigint      NOT NULL,
    key_id      text        NOT NULL COLLATE "C",
    name        text        NOT NULL,
    digest      bytea       NOT NULL, -- SHA-256 of the secret
    permissions text[]      NOT NULL,
    expires_at  timestamptz, -- null: never
    revoked_at  timestamptz,
    revision    bigint      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    networks    cidr[]      NOT NULL DEFAULT '{}', -- where it may be used; empty: anywhere
    created_by_kind text NOT NULL,
    created_by_id   text NOT NULL COLLATE "C",
    created_by_name text NOT NULL,
    kept_at     timestamptz, -- when somebody decided that it stays although its creator has left; null: nobody has
    CONSTRAINT api_key_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_key_key_id_key UNIQUE (key_id),
    CONSTRAINT api_key_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT api_key_key_id_check CHECK (key_id ~ '^[0-9A-Za-z]{1,64}$'),
    CONSTRAINT api_key_name_check CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_key_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT api_key_networks_check CHECK (cardinality(networks) <= 50),
    CONSTRAINT api_key_permissions_check CHECK (permissions <@ ARRAY[
        'check', 'explain', 'refund', 'report', 'lease', 'read', 'rules', 'users', 'settings', 'members', 'keys',
            'alerts', 'manage'])
);

CREATE INDEX api_key_revision_idx ON api_key (tenant_id, revision, key_id);
CREATE INDEX api_key_created_at_idx ON api_key (tenant_id, created_at, key_id);
CREATE INDEX api_key_creator_idx ON api_key (tenant_id, created_by_id, key_id)
    WHERE revoked_at IS NULL AND kept_at IS NULL AND created_by_kind = 'account';

-- Changes to the objects of a tenant, which triggers write. A packed entry has up to 1,000 objects that one statement
-- changed in the same way: rows has each as {"id", "before", "after"}, and object_id is empty.
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
    row_count   integer     NOT NULL DEFAULT 1, -- objects
    rows        jsonb, -- null: one object
    CONSTRAINT audit_event_pkey PRIMARY KEY (tenant_id, audit_id),
    CONSTRAINT audit_event_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT audit_event_action_check CHECK (action IN ('create', 'update', 'remove', 'reset', 'credit')),
    CONSTRAINT audit_event_rows_check CHECK ((row_count = 1) = (rows IS NULL))
);

CREATE INDEX audit_event_at_idx ON audit_event (tenant_id, at, audit_id);
CREATE INDEX audit_event_actor_idx ON audit_event (tenant_id, actor_id, at, audit_id);
CREATE INDEX audit_event_kind_idx ON audit_event (tenant_id, object_kind, at, audit_id);
CREATE INDEX audit_event_object_idx ON audit_event (tenant_id, object_kind, object_id, at, audit_id);
CREATE INDEX audit_event_change_idx ON audit_event (tenant_id, change_id, at, audit_id);

CREATE FUNCTION audit_row_keys(tenant_id bigint, rows jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE COST 1000 AS $$
    SELECT array_agg(concat_ws(':', tenant_id::text, r->>'id')) FROM jsonb_array_elements(rows) AS r
$$;

CREATE INDEX audit_event_rows_idx ON audit_event USING gin ((audit_row_keys(tenant_id, rows)) COLLATE "C")
    WITH (fastupdate = off) WHERE rows IS NOT NULL;

-- packed_audit_of finds packed entries about some objects. A query under row-level security cannot use the index of an
-- expression, so the function runs with the rights of the tables' owner.
CREATE FUNCTION packed_audit_of(of_tenant bigint, kind text, object_ids text[], since timestamptz,
        before_at timestamptz, before_id bigint, at_most integer)
    RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF of_tenant::text <> coalesce(current_setting('sluice.tenant', true), '') THEN
        RAISE EXCEPTION 'another tenant''s log' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN QUERY
    -- First all, by audit_event_rows_idx: a walk by time would unpack every entry.
    WITH found AS MATERIALIZED (
        SELECT e.at, e.audit_id FROM public.audit_event AS e
        WHERE e.tenant_id = of_tenant AND e.object_kind = kind AND e.rows IS NOT NULL
            AND public.audit_row_keys(e.tenant_id, e.rows) COLLATE "C"
                && ARRAY(SELECT concat_ws(':', of_tenant::text, o) FROM unnest(object_ids) AS o)
    )
    SELECT f.audit_id FROM found AS f
    WHERE f.at >= since AND (f.at, f.audit_id) < (before_at, before_id)
    ORDER BY f.at DESC, f.audit_id DESC
    LIMIT at_most;
END
$$;

REVOKE ALL ON FUNCTION packed_audit_of(bigint, text, text[], timestamptz, timestamptz, bigint, integer) FROM PUBLIC;

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('sluice.audit_upkeep', true) = 'on' AND TG_OP <> 'TRUNCATE' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit log can only be added to' USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- audit_actor returns the actor of a transaction: {"kind", "id", "name", "act", "request_id"}.
CREATE FUNCTION audit_actor() RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('sluice.actor', true), '')::jsonb,
        jsonb_build_object('kind', 'system', 'id', session_user, 'name', 'database'))
$$;

-- write_audit keeps the first entry's id in the setting sluice.change for the following entries.
CREATE FUNCTION write_audit(tenant_id bigint, action text, object_kind text, object_id text, before jsonb, after jsonb,
        rows jsonb DEFAULT NULL)
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
        action, object_kind, object_id, change_id, before, after, coalesce(jsonb_array_length(rows), 1), rows);
    RETURN audit_id;
END
$$;

-- audit_images returns what the log shows of a change from one row to another; null is no row.
--
-- A row that is marked removed or revoked counts as gone: the mark is "remove", and clearing it is "create". A change
-- of bookkeeping alone is not logged. The log shows no secret; a webhook's URL may hold one. Here and below OFFSET 0
-- keeps the planner from computing an image once for each of its uses.
CREATE FUNCTION audit_images(old_row jsonb, new_row jsonb)
    RETURNS TABLE (action text, before jsonb, after jsonb) LANGUAGE sql IMMUTABLE AS $$
    SELECT
        CASE WHEN i.before IS NULL THEN 'create' WHEN i.after IS NULL THEN 'remove' ELSE 'update' END,
        i.before - '{tenant_id,removed_at,revoked_at,digest,token_digest,password_hash,secret,url}'::text[],
        i.after - '{tenant_id,removed_at,revoked_at,digest,token_digest,password_hash,secret,url}'::text[]
    FROM (
        SELECT
            CASE WHEN coalesce(old_row->>'removed_at', old_row->>'revoked_at') IS NULL THEN old_row END AS before,
            CASE WHEN coalesce(new_row->>'removed_at', new_row->>'revoked_at') IS NULL THEN new_row END AS after
        OFFSET 0
    ) AS i
    WHERE coalesce(i.before, i.after) IS NOT NULL
        AND old_row - '{revision,version,updated_at,last_used_at,last_seen_at,token_digest}'::text[]
            IS DISTINCT FROM new_row - '{revision,version,updated_at,last_used_at,last_seen_at,token_digest}'::text[]
$$;

-- audit_change takes the kind of object and the columns that make its id: audit_change('override', 'rule_id',
-- 'user_id'). An object that a tenant has once has its kind as its id.
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
        old_row := old_row - 'parameters' || coalesce(old_row->'parameters', '{}');
    END IF;
    IF TG_OP <> 'DELETE' THEN
        new_row := to_jsonb(NEW);
        new_row := new_row - 'parameters' || coalesce(new_row->'parameters', '{}');
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

-- write_audit_rows gives up to 20 objects that a statement changed in the same way their own entries, and packs more.
CREATE FUNCTION write_audit_rows(tenant_id bigint, action text, object_kind text, rows jsonb[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    one jsonb;
BEGIN
    IF cardinality(rows) > 20 THEN
        PERFORM write_audit(tenant_id, action, object_kind, '', NULL, NULL, to_jsonb(rows));
        RETURN;
    END IF;
    FOREACH one IN ARRAY rows LOOP
        PERFORM write_audit(tenant_id, action, object_kind, one->>'id', nullif(one->'before', 'null'),
            nullif(one->'after', 'null'));
    END LOOP;
END
$$;

-- audit_changes is audit_change for tables with bulk writes: it runs once for a statement, and packs the changes. The
-- id is the rule, if there is one, and the user. Programs delete few rows of these tables, so deletions are left to
-- audit_change.
CREATE FUNCTION audit_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes refcursor;
    change  record;
    tenant  bigint; -- of rows
    done    text; -- to rows
    rows    jsonb[] := '{}';
    bytes   bigint := 0; -- of rows, about; receivers of webhooks often take no more than 1 MB
BEGIN
    IF TG_OP = 'INSERT' THEN
        OPEN changes FOR
        SELECT r.tenant_id, i.action, jsonb_build_object('id', r.object_id, 'before', i.before, 'after', i.after) AS row
        FROM (
            SELECT n.tenant_id, concat_ws(':', to_jsonb(n)->>'rule_id', n.user_id) AS object_id, to_jsonb(n) AS image
            FROM new_rows AS n OFFSET 0
        ) AS r
        CROSS JOIN LATERAL audit_images(NULL, r.image) AS i
        ORDER BY r.tenant_id, i.action;
    ELSE
        OPEN changes FOR
        SELECT tenant_id, i.action, jsonb_build_object('id', object_id, 'before', i.before, 'after', i.after) AS row
        FROM (
            SELECT o.tenant_id, concat_ws(':', to_jsonb(o)->>'rule_id', o.user_id) AS object_id, to_jsonb(o) AS image
            FROM old_rows AS o OFFSET 0
        ) AS was
        FULL JOIN (
            SELECT n.tenant_id, concat_ws(':', to_jsonb(n)->>'rule_id', n.user_id) AS object_id, to_jsonb(n) AS image
            FROM new_rows AS n OFFSET 0
        ) AS becomes USING (tenant_id, object_id)
        CROSS JOIN LATERAL audit_images(was.image, becomes.image) AS i
        ORDER BY tenant_id, i.action;
    END IF;
    LOOP
        FETCH changes INTO change;
        IF cardinality(rows) = 1000 OR bytes > 600000 OR cardinality(rows) > 0
            AND (change.tenant_id, change.action) IS DISTINCT FROM (tenant, done)
        THEN
            PERFORM write_audit_rows(tenant, done, TG_ARGV[0], rows);
            rows := '{}';
            bytes := 0;
        END IF;
        EXIT WHEN change.tenant_id IS NULL;
        tenant := change.tenant_id;
        done := change.action;
        rows := rows || change.row;
        bytes := bytes + pg_column_size(change.row);
    END LOOP;
    CLOSE changes;
    RETURN NULL;
END
$$;

CREATE TRIGGER tenant_audit AFTER INSERT OR UPDATE OR DELETE ON tenant
    FOR EACH ROW EXECUTE FUNCTION audit_change('tenant', 'slug');
CREATE TRIGGER plan_audit AFTER INSERT OR UPDATE OR DELETE ON plan
    FOR EACH ROW EXECUTE FUNCTION audit_change('plan', 'name');
CREATE TRIGGER gateway_audit AFTER INSERT OR UPDATE OR DELETE ON gateway
    FOR EACH ROW EXECUTE FUNCTION audit_change('gateway', 'kind');
CREATE TRIGGER rate_limit_rule_audit AFTER INSERT OR UPDATE OR DELETE ON rate_limit_rule
    FOR EACH ROW EXECUTE FUNCTION audit_change('rule', 'rule_id');
CREATE TRIGGER rate_limit_override_audit_insert AFTER INSERT ON rate_limit_override
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('override');
CREATE TRIGGER rate_limit_override_audit_update AFTER UPDATE ON rate_limit_override
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
        EXECUTE FUNCTION audit_changes('override');
CREATE TRIGGER rate_limit_override_audit_delete AFTER DELETE ON rate_limit_override
    FOR EACH ROW EXECUTE FUNCTION audit_change('override', 'rule_id', 'user_id');
CREATE TRIGGER plan_assignment_audit_insert AFTER INSERT ON plan_assignment
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('user');
CREATE TRIGGER plan_assignment_audit_update AFTER UPDATE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION audit_changes('user');
CREATE TRIGGER plan_assignment_audit_delete AFTER DELETE ON plan_assignment
    FOR EACH ROW EXECUTE FUNCTION audit_change('user', 'user_id');
CREATE TRIGGER api_key_audit AFTER INSERT OR UPDATE OR DELETE ON api_key
    FOR EACH ROW EXECUTE FUNCTION audit_change('api_key', 'key_id');

-- Triggers count the rules and users of a plan, because counting a million users takes long.
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

-- A transaction that writes rules one by one sets sluice.count_rules to 'later' and runs count_rules at its end: each
-- version of a row slows down the next.
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

CREATE TRIGGER rate_limit_rule_inserted AFTER INSERT ON rate_limit_rule
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER rate_limit_rule_updated AFTER UPDATE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER rate_limit_rule_deleted AFTER DELETE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER plan_assignment_inserted AFTER INSERT ON plan_assignment
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER plan_assignment_updated AFTER UPDATE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();
CREATE TRIGGER plan_assignment_deleted AFTER DELETE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_plan_use();

-- Uses, to the minute, are apart from api_key, because checks depend on that table's rows.
CREATE TABLE api_key_use (
    tenant_id    bigint      NOT NULL,
    key_id       text        NOT NULL COLLATE "C",
    last_used_at timestamptz NOT NULL,
    CONSTRAINT api_key_use_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_key_use_key_fkey FOREIGN KEY (tenant_id, key_id) REFERENCES api_key (tenant_id, key_id)
);

-- Accounts are global: a person may be a member of several tenants. Secrets of sessions and invitations are stored as
-- SHA-256 digests.
CREATE TABLE account (
    account_id        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    email             text        NOT NULL COLLATE "C", -- as typed; it never changes
    name              text        NOT NULL DEFAULT '',
    password_hash     text        NOT NULL, -- argon2id, in the PHC string format
    is_platform_admin boolean     NOT NULL DEFAULT false,
    disabled_at       timestamptz,
    version           bigint      NOT NULL DEFAULT 1, -- not raised by a password
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    -- the tenant that invited an account by a link that others could have used
    unproven_in bigint,
    second_factor_at timestamptz, -- null: it has none
    recovery_codes_at timestamptz, -- when they were made
    admin_by    text NOT NULL DEFAULT '' COLLATE "C",
    CONSTRAINT account_pkey PRIMARY KEY (account_id),
    CONSTRAINT account_unproven_in_fkey FOREIGN KEY (unproven_in) REFERENCES tenant (tenant_id),
    CONSTRAINT account_unproven_check CHECK (unproven_in IS NULL OR NOT is_platform_admin),
    CONSTRAINT account_email_check CHECK (octet_length(email) BETWEEN 3 AND 254),
    CONSTRAINT account_name_check CHECK (char_length(name) <= 100)
);

CREATE UNIQUE INDEX account_email_key ON account (lower(email)) WHERE unproven_in IS NULL;
CREATE UNIQUE INDEX account_unproven_email_key ON account (unproven_in, lower(email)) WHERE unproven_in IS NOT NULL;
CREATE INDEX account_list_idx ON account (lower(email), account_id);

CREATE TABLE account_identity (
    identity_id  bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    issuer       text        NOT NULL COLLATE "C",
    subject      text        NOT NULL COLLATE "C",
    account_id   bigint      NOT NULL,
    email        text        NOT NULL DEFAULT '' COLLATE "C", -- as the provider told it last
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz, -- to the minute; null: never to sign in
    CONSTRAINT account_identity_pkey PRIMARY KEY (identity_id),
    CONSTRAINT account_identity_issuer_subject_key UNIQUE (issuer, subject),
    CONSTRAINT account_identity_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT account_identity_issuer_check CHECK (octet_length(issuer) BETWEEN 1 AND 2048),
    CONSTRAINT account_identity_subject_check CHECK (octet_length(subject) BETWEEN 1 AND 1020),
    CONSTRAINT account_identity_email_check CHECK (octet_length(email) <= 254)
);

CREATE INDEX account_identity_account_idx ON account_identity (account_id);

CREATE TABLE used_sign_in (
    flow_digest bytea       NOT NULL,
    expires_at  timestamptz NOT NULL,
    CONSTRAINT used_sign_in_pkey PRIMARY KEY (flow_digest),
    CONSTRAINT used_sign_in_flow_digest_check CHECK (octet_length(flow_digest) = 32)
);

CREATE INDEX used_sign_in_expires_idx ON used_sign_in (expires_at);

CREATE TABLE session (
    session_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    account_id   bigint      NOT NULL,
    token_digest bytea       NOT NULL,
    user_agent   text        NOT NULL DEFAULT '',
    ip           inet,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(), -- to the minute
    second_factor boolean    NOT NULL DEFAULT false,
    confirmed_at timestamptz, -- when its owner last signed in again; null: not since created_at
    provider     text        NOT NULL DEFAULT '' COLLATE "C",
    CONSTRAINT session_pkey PRIMARY KEY (session_id),
    CONSTRAINT session_token_digest_key UNIQUE (token_digest),
    CONSTRAINT session_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT session_token_digest_check CHECK (octet_length(token_digest) = 32),
    CONSTRAINT session_user_agent_check CHECK (char_length(user_agent) <= 256)
);

CREATE INDEX session_account_idx ON session (account_id, session_id);
CREATE INDEX session_created_idx ON session (created_at);

-- A second factor counts once account.second_factor_at is set; before that, it waits for its first code.
CREATE TABLE second_factor (
    account_id bigint      NOT NULL,
    secret     bytea       NOT NULL, -- sealed under a key that the database does not have
    last_step  bigint      NOT NULL DEFAULT 0, -- codes of this time step and earlier ones are used up
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT second_factor_pkey PRIMARY KEY (account_id),
    CONSTRAINT second_factor_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id)
);

CREATE TABLE recovery_code (
    account_id  bigint NOT NULL,
    code_digest bytea  NOT NULL,
    CONSTRAINT recovery_code_pkey PRIMARY KEY (account_id, code_digest),
    CONSTRAINT recovery_code_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT recovery_code_digest_check CHECK (octet_length(code_digest) = 32)
);

CREATE TABLE pending_sign_in (
    token_digest bytea       NOT NULL,
    account_id   bigint      NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    expires_at   timestamptz NOT NULL,
    CONSTRAINT pending_sign_in_pkey PRIMARY KEY (token_digest),
    CONSTRAINT pending_sign_in_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT pending_sign_in_token_digest_check CHECK (octet_length(token_digest) = 32)
);

CREATE INDEX pending_sign_in_account_idx ON pending_sign_in (account_id, expires_at);
CREATE INDEX pending_sign_in_age_idx ON pending_sign_in (expires_at);

-- Attempts to sign in since the last success. The subject is a digest of an address, known or not, of a device or of a
-- session, so that what people type by mistake is not stored.
CREATE TABLE sign_in_attempt (
    subject  bytea       NOT NULL,
    network  cidr        NOT NULL, -- that they come from; 0.0.0.0/0 counts those from anywhere
    attempts integer     NOT NULL,
    last_at  timestamptz NOT NULL,
    CONSTRAINT sign_in_attempt_pkey PRIMARY KEY (subject, network),
    CONSTRAINT sign_in_attempt_subject_check CHECK (octet_length(subject) = 32)
);

CREATE INDEX sign_in_attempt_last_at_idx ON sign_in_attempt (last_at);
-- A flood of made-up addresses leaves many.
CREATE INDEX sign_in_attempt_few_idx ON sign_in_attempt (last_at) WHERE attempts < 5;

CREATE TABLE member (
    tenant_id  bigint      NOT NULL,
    account_id bigint      NOT NULL,
    role       text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    granted_by text        NOT NULL DEFAULT '' COLLATE "C", -- the issuer whose groups gave the role; '' for a person
    CONSTRAINT member_pkey PRIMARY KEY (tenant_id, account_id),
    CONSTRAINT member_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT member_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT member_role_check CHECK (role IN ('viewer', 'editor', 'owner'))
);

CREATE INDEX member_account_idx ON member (account_id, tenant_id);

-- An account that has not proven its address is a member of the tenant that invited it, and of no other.
CREATE FUNCTION member_may_join() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM account WHERE account_id = NEW.account_id AND unproven_in <> NEW.tenant_id) THEN
        RAISE EXCEPTION 'the account has not proven its address' USING ERRCODE = 'check_violation',
            CONSTRAINT = 'member_proven_check';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER member_may_join BEFORE INSERT ON member FOR EACH ROW EXECUTE FUNCTION member_may_join();

-- The link of an invitation names no tenant, so a token's digest is unique among all tenants.
CREATE TABLE invitation (
    tenant_id     bigint      NOT NULL,
    invitation_id bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    email         text        NOT NULL COLLATE "C",
    role          text        NOT NULL,
    token_digest  bytea       NOT NULL,
    invited_by    text        NOT NULL, -- the inviter's address, or who else it was
    invited_by_account bigint, -- null: it was no account
    expires_at    timestamptz NOT NULL,
    accepted_at   timestamptz,
    accepted_by   bigint, -- an account
    revoked_at    timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    by_mail       boolean     NOT NULL DEFAULT false, -- only the invitee has seen the token, so it proves the address
    CONSTRAINT invitation_pkey PRIMARY KEY (tenant_id, invitation_id),
    CONSTRAINT invitation_token_digest_key UNIQUE (token_digest),
    CONSTRAINT invitation_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT invitation_invited_by_account_fkey FOREIGN KEY (invited_by_account) REFERENCES account (account_id),
    CONSTRAINT invitation_accepted_by_fkey FOREIGN KEY (accepted_by) REFERENCES account (account_id),
    CONSTRAINT invitation_email_check CHECK (octet_length(email) BETWEEN 3 AND 254),
    CONSTRAINT invitation_role_check CHECK (role IN ('viewer', 'editor', 'owner')),
    CONSTRAINT invitation_token_digest_check CHECK (octet_length(token_digest) = 32),
    CONSTRAINT invitation_once_check CHECK (accepted_at IS NULL OR revoked_at IS NULL),
    CONSTRAINT invitation_accepted_by_check CHECK ((accepted_at IS NULL) = (accepted_by IS NULL))
);

-- A new invitation revokes the address's previous one, and a person's invitations are revoked with the right to invite.
CREATE INDEX invitation_open_idx ON invitation (tenant_id, invitation_id) WHERE accepted_at IS NULL
    AND revoked_at IS NULL;
CREATE INDEX invitation_email_idx ON invitation (tenant_id, lower(email)) WHERE accepted_at IS NULL
    AND revoked_at IS NULL;
CREATE INDEX invitation_ended_idx ON invitation (least(expires_at, accepted_at, revoked_at));
CREATE INDEX invitation_account_idx ON invitation (invited_by_account, tenant_id) WHERE accepted_at IS NULL
    AND revoked_at IS NULL;

CREATE TABLE mail (
    tenant_id     bigint      NOT NULL, -- in whose share it is sent; 0 for the platform's own
    mail_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind          text        NOT NULL,
    recipient     text        NOT NULL,
    account_id    bigint      NOT NULL DEFAULT 0, -- 0: none is known
    invitation_id bigint,
    facts         jsonb       NOT NULL DEFAULT '{}', -- what a notice says
    created_at    timestamptz NOT NULL DEFAULT now(),
    give_up_at    timestamptz NOT NULL, -- it is not sent later
    state         text        NOT NULL DEFAULT 'queued',
    attempts      integer     NOT NULL DEFAULT 0,
    attempted_at  timestamptz,
    error         text        NOT NULL DEFAULT '',
    CONSTRAINT mail_pkey PRIMARY KEY (tenant_id, mail_id),
    CONSTRAINT mail_mail_id_key UNIQUE (mail_id),
    CONSTRAINT mail_invitation_fkey FOREIGN KEY (tenant_id, invitation_id)
        REFERENCES invitation (tenant_id, invitation_id),
    CONSTRAINT mail_state_check CHECK (state IN ('queued', 'sent', 'failed'))
);

CREATE INDEX mail_queued_idx ON mail (tenant_id) WHERE state = 'queued';
CREATE INDEX mail_created_idx ON mail (tenant_id, created_at);
CREATE INDEX mail_age_idx ON mail (created_at);
CREATE INDEX mail_account_idx ON mail (account_id, created_at) WHERE account_id <> 0;
CREATE INDEX mail_invitation_idx ON mail (tenant_id, invitation_id) WHERE invitation_id IS NOT NULL;

CREATE TABLE mailed_link (
    account_id   bigint      NOT NULL,
    purpose      text        NOT NULL,
    token_digest bytea       NOT NULL,
    expires_at   timestamptz NOT NULL,
    CONSTRAINT mailed_link_pkey PRIMARY KEY (account_id, purpose), -- a new link replaces the former
    CONSTRAINT mailed_link_token_digest_key UNIQUE (token_digest),
    CONSTRAINT mailed_link_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT mailed_link_token_digest_check CHECK (octet_length(token_digest) = 32)
);

CREATE INDEX mailed_link_expires_idx ON mailed_link (expires_at);

CREATE TRIGGER member_audit AFTER INSERT OR UPDATE OR DELETE ON member
    FOR EACH ROW EXECUTE FUNCTION audit_change('member', 'account_id');
CREATE TRIGGER invitation_audit AFTER INSERT OR UPDATE OR DELETE ON invitation
    FOR EACH ROW EXECUTE FUNCTION audit_change('invitation', 'invitation_id');

-- Rows have no foreign keys and keep what the rule was then, because rules change and rows stay. Rows of a day without
-- a partition are in the default one, and move when its partition is made.
CREATE TABLE rate_limit_violation (
    tenant_id       bigint           NOT NULL,
    violation_id    bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    requested_at    timestamptz      NOT NULL,
    last_at         timestamptz      NOT NULL,
    recorded_at     timestamptz      NOT NULL DEFAULT now(), -- when it arrived here
    count           bigint           NOT NULL,
    rule_id         bigint           NOT NULL,
    bucket_key      text             NOT NULL, -- the rule's id, a colon, the subject
    scope           text             NOT NULL,
    mode            text             NOT NULL,
    reason          text             NOT NULL,
    key_pattern     text             NOT NULL,
    rule_version    bigint           NOT NULL,
    rate_per_second double precision NOT NULL,
    burst_capacity  bigint           NOT NULL,
    user_id         text             COLLATE "C", -- null, like the next three, for a check without
    ip_address      inet,
    endpoint        text             COLLATE "C",
    method          text             COLLATE "C",
    plan            text             COLLATE "C",
    cost            double precision NOT NULL, -- in tokens, like the next; null for a bucket that was not read
    tokens_at_time  double precision,
    retry_after_ms  bigint, -- null if waiting would not have helped
    algorithm       text             NOT NULL,
    limit_text      text             NOT NULL, -- as people say it
    meter           text             NOT NULL DEFAULT '', -- '': requests
    CONSTRAINT rate_limit_violation_pkey PRIMARY KEY (tenant_id, requested_at, violation_id)
) PARTITION BY RANGE (requested_at);

CREATE TABLE rate_limit_violation_default PARTITION OF rate_limit_violation DEFAULT;

CREATE INDEX rate_limit_violation_rule_idx ON rate_limit_violation (tenant_id, rule_id, requested_at, violation_id);
CREATE INDEX rate_limit_violation_user_idx ON rate_limit_violation (tenant_id, user_id, requested_at, violation_id)
    WHERE user_id IS NOT NULL;
CREATE INDEX rate_limit_violation_ip_idx ON rate_limit_violation (tenant_id, ip_address, requested_at, violation_id)
    WHERE ip_address IS NOT NULL;
CREATE INDEX rate_limit_violation_endpoint_idx ON rate_limit_violation (tenant_id, endpoint, requested_at, violation_id)
    WHERE endpoint IS NOT NULL;
CREATE INDEX rate_limit_violation_recorded_idx ON rate_limit_violation (tenant_id, recorded_at);

-- denied is the sum of the violations' counts and of detail_dropped. Subjects longer than 1024 bytes end in their
-- digest.
CREATE TABLE violation_minute (
    tenant_id      bigint      NOT NULL,
    minute         timestamptz NOT NULL,
    rule_id        bigint      NOT NULL,
    subject        text        NOT NULL COLLATE "C",
    other          boolean     NOT NULL, -- all subjects for which a process had no room; subject is ''
    denied         bigint      NOT NULL,
    detail_dropped bigint      NOT NULL,
    CONSTRAINT violation_minute_pkey PRIMARY KEY (tenant_id, minute, rule_id, subject, other)
) PARTITION BY RANGE (minute);

CREATE TABLE violation_minute_default PARTITION OF violation_minute DEFAULT;

CREATE INDEX violation_minute_rule_idx ON violation_minute (tenant_id, rule_id, minute);

-- Slots of 5 seconds become whole minutes when they are no longer recent.
CREATE TABLE denial_count (
    tenant_id bigint      NOT NULL,
    dimension text        NOT NULL,
    slot      timestamptz NOT NULL,
    rule_id   bigint      NOT NULL, -- 0: rules for which a process had no room
    mode      text        NOT NULL,
    value     text        NOT NULL COLLATE "C", -- '' for checks without one
    other     boolean     NOT NULL, -- all values for which a process had no room; value is ''
    denied    bigint      NOT NULL,
    CONSTRAINT denial_count_pkey PRIMARY KEY (tenant_id, dimension, slot, rule_id, mode, value, other)
) PARTITION BY RANGE (slot);

CREATE TABLE denial_count_default PARTITION OF denial_count DEFAULT;

-- For erasing a user, and for slots that are no whole minutes yet.
CREATE INDEX denial_count_user_idx ON denial_count (tenant_id, value) WHERE dimension = 'user';
CREATE INDEX denial_count_slot_idx ON denial_count (slot)
    WHERE date_bin('1 minute', slot, timestamptz '1970-01-01 00:00:00Z') <> slot;

CREATE TABLE recent_check (
    tenant_id bigint      NOT NULL,
    dimension text        NOT NULL, -- '' for all callers; value is ''
    slot      timestamptz NOT NULL,
    value     text        NOT NULL COLLATE "C",
    checks    bigint      NOT NULL,
    CONSTRAINT recent_check_pkey PRIMARY KEY (tenant_id, dimension, slot, value)
);

CREATE INDEX recent_check_slot_idx ON recent_check (slot);

-- Rule 0 is for checks as a whole, -1 for what rules in shadow mode would have denied, and numbers below for all rules
-- of a meter (see violations.RulesOf). Degraded decisions are among the three before.
CREATE TABLE decision_minute (
    tenant_id  bigint      NOT NULL,
    rule_id    bigint      NOT NULL,
    minute     timestamptz NOT NULL,
    allowed    bigint      NOT NULL,
    denied     bigint      NOT NULL,
    bypassed   bigint      NOT NULL,
    degraded   bigint      NOT NULL,
    cost_taken numeric     NOT NULL, -- in tokens
    near_limit bigint      NOT NULL, -- allowed checks that left less than a fifth of the rule's limit
    CONSTRAINT decision_minute_pkey PRIMARY KEY (tenant_id, rule_id, minute)
) PARTITION BY RANGE (minute);

CREATE TABLE decision_minute_default PARTITION OF decision_minute DEFAULT;

CREATE INDEX decision_minute_minute_idx ON decision_minute (tenant_id, minute);

-- Sums of decision_minute over 1, 6 and 24 hours make a chart of any length read a few rows for each point.
CREATE TABLE decision_span (
    tenant_id    bigint      NOT NULL,
    rule_id      bigint      NOT NULL,
    span_minutes integer     NOT NULL,
    starts_at    timestamptz NOT NULL, -- a multiple of the span since the Unix epoch
    allowed      bigint      NOT NULL,
    denied       bigint      NOT NULL,
    bypassed     bigint      NOT NULL,
    degraded     bigint      NOT NULL,
    cost_taken   numeric     NOT NULL,
    CONSTRAINT decision_span_pkey PRIMARY KEY (tenant_id, rule_id, span_minutes, starts_at)
);

CREATE INDEX decision_span_starts_idx ON decision_span (tenant_id, span_minutes, starts_at);

CREATE TABLE recorder_batch (
    writer_id  text        NOT NULL COLLATE "C",
    batch_seq  bigint      NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT recorder_batch_pkey PRIMARY KEY (writer_id, batch_seq)
);

CREATE INDEX recorder_batch_written_idx ON recorder_batch (written_at);

-- Crossings of shares of fixed windows' limits: see violations.Crossing. An earlier time replaces a later one.
CREATE TABLE quota_crossing (
    tenant_id      bigint           NOT NULL,
    rule_id        bigint           NOT NULL,
    subject        text             NOT NULL COLLATE "C", -- longer than 1024 bytes: it ends in its digest
    window_start   timestamptz      NOT NULL,
    share          smallint         NOT NULL, -- percent of the limit
    crossing_id    bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    window_end     timestamptz      NOT NULL,
    crossed_at     timestamptz      NOT NULL,
    recorded_at    timestamptz      NOT NULL DEFAULT now(), -- when it arrived here
    used           double precision NOT NULL, -- in tokens
    burst_capacity bigint           NOT NULL,
    mode           text             NOT NULL,
    rule_name      text             NOT NULL,
    key_pattern    text             NOT NULL,
    user_id        text             COLLATE "C", -- whose bucket it is; null for one that users share
    meter          text             NOT NULL DEFAULT '', -- '': requests
    CONSTRAINT quota_crossing_pkey PRIMARY KEY (tenant_id, rule_id, subject, window_start, share)
);

CREATE INDEX quota_crossing_at_idx ON quota_crossing (tenant_id, crossed_at, crossing_id);
CREATE INDEX quota_crossing_rule_idx ON quota_crossing (tenant_id, rule_id, crossed_at, crossing_id);
CREATE INDEX quota_crossing_user_idx ON quota_crossing (tenant_id, user_id, crossed_at, crossing_id)
    WHERE user_id IS NOT NULL;
CREATE INDEX quota_crossing_end_idx ON quota_crossing (window_end);

CREATE TABLE alert (
    tenant_id      bigint      NOT NULL,
    alert_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    name           text        NOT NULL,
    rule_id        bigint, -- null: each rule, or all checks
    per_subject    boolean     NOT NULL, -- the threshold is that of any one subject, not of all together
    threshold      bigint      NOT NULL, -- in percent of the checks for near_limit
    window_minutes integer     NOT NULL,
    -- '' for mail; for Slack what people see, because the whole URL is the secret
    url            text        NOT NULL,
    -- signs webhooks; Slack's URL; PagerDuty's routing key; with "sealed:" before it unless there was no key
    secret         text        NOT NULL,
    is_active      boolean     NOT NULL,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    format         text        NOT NULL DEFAULT 'webhook',
    email          text        NOT NULL DEFAULT '' COLLATE "C", -- of a member; '' for other formats
    kind           text        NOT NULL DEFAULT 'denials',
    silenced_until timestamptz, -- nothing is sent before; null or in the past: it is not silenced
    silenced_by    text        NOT NULL DEFAULT '',
    silence_reason text        NOT NULL DEFAULT '',
    CONSTRAINT alert_pkey PRIMARY KEY (tenant_id, alert_id),
    CONSTRAINT alert_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT alert_rule_fkey FOREIGN KEY (tenant_id, rule_id) REFERENCES rate_limit_rule (tenant_id, rule_id),
    CONSTRAINT alert_name_check CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT alert_threshold_check CHECK (threshold >= 1),
    CONSTRAINT alert_window_minutes_check CHECK (window_minutes BETWEEN 1 AND 60),
    CONSTRAINT alert_url_check CHECK (octet_length(url) <= 2048),
    CONSTRAINT alert_format_check CHECK (format IN ('webhook', 'slack', 'pagerduty', 'email')),
    CONSTRAINT alert_kind_check CHECK (kind IN ('denials', 'near_limit', 'crossings', 'degraded')),
    CONSTRAINT alert_percent_check CHECK (kind <> 'near_limit' OR threshold <= 100),
    CONSTRAINT alert_silence_check CHECK (char_length(silence_reason) <= 500)
);

CREATE TABLE delivery (
    tenant_id    bigint      NOT NULL,
    delivery_id  bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    alert_id     bigint      NOT NULL,
    subject      text        NOT NULL COLLATE "C", -- '' for all of the rule's together
    denied       bigint      NOT NULL, -- what its alert counts
    since        timestamptz NOT NULL,
    raised_at    timestamptz NOT NULL,
    state        text        NOT NULL DEFAULT 'pending',
    attempts     integer     NOT NULL DEFAULT 0,
    attempted_at timestamptz,
    http_status  integer, -- of the latest answer; null for none
    error        text        NOT NULL DEFAULT '',
    is_test      boolean     NOT NULL DEFAULT false, -- somebody asked for it
    mail_id      bigint, -- the message that carries it, which has its own state from then on; null for other formats
    rule_id      bigint, -- null for checks as a whole
    silenced     boolean     NOT NULL DEFAULT false, -- recorded and not sent; its state is delivered
    kind           text      NOT NULL,
    per_subject    boolean   NOT NULL,
    threshold      bigint    NOT NULL,
    window_minutes integer   NOT NULL,
    mode           text      NOT NULL, -- shadow while the tenant is; '' without a rule
    CONSTRAINT delivery_pkey PRIMARY KEY (tenant_id, delivery_id),
    CONSTRAINT delivery_alert_fkey FOREIGN KEY (tenant_id, alert_id)
        REFERENCES alert (tenant_id, alert_id) ON DELETE CASCADE,
    CONSTRAINT delivery_state_check CHECK (state IN ('pending', 'delivered', 'failed'))
);

CREATE INDEX delivery_alert_idx ON delivery (tenant_id, alert_id, raised_at);
CREATE INDEX delivery_ended_idx ON delivery (raised_at) WHERE state <> 'pending';
CREATE INDEX delivery_pending_idx ON delivery (tenant_id, alert_id) WHERE state = 'pending';

CREATE TRIGGER alert_audit AFTER INSERT OR UPDATE OR DELETE ON alert
    FOR EACH ROW EXECUTE FUNCTION audit_change('alert', 'alert_id');

-- The progress stands apart, because the log has every change of this table.
CREATE TABLE audit_webhook (
    tenant_id  bigint      NOT NULL,
    url        text        NOT NULL,
    secret     text        NOT NULL, -- sealed as that of an alert
    is_active  boolean     NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT audit_webhook_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT audit_webhook_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT audit_webhook_url_check CHECK (octet_length(url) <= 2048)
);

CREATE TABLE audit_webhook_progress (
    tenant_id    bigint      NOT NULL,
    sent_to      bigint      NOT NULL, -- the audit_id of the last entry that was received
    skipped      bigint      NOT NULL DEFAULT 0, -- entries that retention deleted before they were received
    failures     integer     NOT NULL DEFAULT 0, -- attempts since the last success
    attempted_at timestamptz,
    succeeded_at timestamptz,
    http_status  integer, -- of the latest answer; null for none
    error        text        NOT NULL DEFAULT '', -- of the latest attempt
    tested_at    timestamptz,
    test_status  integer,
    test_error   text        NOT NULL DEFAULT '',
    CONSTRAINT audit_webhook_progress_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT audit_webhook_progress_webhook_fkey FOREIGN KEY (tenant_id)
        REFERENCES audit_webhook (tenant_id) ON DELETE CASCADE
);

CREATE TRIGGER audit_webhook_audit AFTER INSERT OR UPDATE OR DELETE ON audit_webhook
    FOR EACH ROW EXECUTE FUNCTION audit_change('audit_webhook');

-- Dropping a partition takes no longer with more rows, and leaves nothing to vacuum. The functions run with the rights
-- of the role that migrated, so that a process's role cannot change the schema. Their short lock timeout keeps others
-- from queueing behind them.

-- day_column returns the column by whose days (in UTC) a table is partitioned.
CREATE FUNCTION day_column(parent text, OUT name text, OUT is_date boolean)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    SELECT a.attname, a.atttypid = 'date'::regtype INTO name, is_date
    FROM pg_partitioned_table AS p
    JOIN pg_class AS c ON c.oid = p.partrelid AND c.relnamespace = 'public'::regnamespace AND c.relname = parent
    JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0];
    IF NOT FOUND THEN
        RAISE EXCEPTION '% has no partitions', parent;
    END IF;
END
$$;

CREATE FUNCTION make_day_partition(parent text, day date) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text := parent || '_' || to_char(day, 'YYYYMMDD');
    by_day record := day_column(parent);
    first_at text := CASE WHEN by_day.is_date THEN day::text ELSE (day::timestamp AT TIME ZONE 'UTC')::text END;
    end_at text := CASE WHEN by_day.is_date THEN (day + 1)::text
        ELSE ((day + 1)::timestamp AT TIME ZONE 'UTC')::text END;
BEGIN
    IF day NOT BETWEEN current_date - 800 AND current_date + 60 THEN
        RAISE EXCEPTION 'no partition is made for %', day;
    END IF;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- No row may come into the default partition before the new one takes its place.
    EXECUTE format('LOCK TABLE public.%I IN ACCESS EXCLUSIVE MODE', parent || '_default');
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.%I INCLUDING DEFAULTS INCLUDING STORAGE)', partition, parent);
    EXECUTE format('WITH moved AS (DELETE FROM public.%1$I WHERE %2$I >= %3$L AND %2$I < %4$L RETURNING *)
        INSERT INTO public.%5$I SELECT * FROM moved', parent || '_default', by_day.name, first_at, end_at, partition);
    EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        parent, partition, first_at, end_at);
    RETURN true;
END
$$;

-- drop_day_partitions drops also the days' rows of the default partition, and always keeps yesterday's.
CREATE FUNCTION drop_day_partitions(parent text, before date) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    by_day record := day_column(parent);
    partition text;
    dropped integer := 0;
BEGIN
    IF before > (now() AT TIME ZONE 'UTC')::date - 1 THEN
        RAISE EXCEPTION 'rows of % are kept for a day at least, so not dropped before %', parent, before;
    END IF;
    FOR partition IN
        SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = format('public.%I', parent)::regclass AND relname ~ '_[0-9]{8}$'
            AND to_date(right(relname, 8), 'YYYYMMDD') < before
        ORDER BY relname
    LOOP
        EXECUTE format('DROP TABLE public.%I', partition);
        dropped := dropped + 1;
    END LOOP;
    EXECUTE format('DELETE FROM public.%I WHERE %I < %L', parent || '_default', by_day.name,
        CASE WHEN by_day.is_date THEN before::text ELSE (before::timestamp AT TIME ZONE 'UTC')::text END);
    RETURN dropped;
END
$$;

CREATE FUNCTION days_without_partition(parent text, since date) RETURNS SETOF date
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    by_day record := day_column(parent);
BEGIN
    RETURN QUERY EXECUTE format('SELECT DISTINCT d.day FROM (SELECT %s AS day FROM public.%I) AS d
        WHERE d.day BETWEEN %L AND current_date + 60 ORDER BY d.day',
        CASE WHEN by_day.is_date THEN quote_ident(by_day.name)
            ELSE format('(%I AT TIME ZONE ''UTC'')::date', by_day.name) END, parent || '_default', since);
END
$$;

REVOKE ALL ON FUNCTION make_day_partition(text, date) FROM PUBLIC;
REVOKE ALL ON FUNCTION drop_day_partitions(text, date) FROM PUBLIC;
REVOKE ALL ON FUNCTION days_without_partition(text, date) FROM PUBLIC;

CREATE TABLE traffic_block (
    tenant_id bigint      NOT NULL,
    day       date        NOT NULL, -- of all its checks, in UTC
    writer    text        NOT NULL COLLATE "C",
    number    bigint      NOT NULL, -- of the writer's blocks
    first_at  timestamptz NOT NULL,
    last_at   timestamptz NOT NULL,
    stratum   smallint    NOT NULL,
    level     smallint    NOT NULL,
    checks    integer     NOT NULL,
    seen      bigint      NOT NULL, -- checks since the tenant's previous block of the writer
    left_out  bigint      NOT NULL, -- of these, never recorded
    dropped   bigint      NOT NULL, -- of these, without room
    users     text[]      NOT NULL, -- so that the blocks of a user are found
    payload   bytea       NOT NULL, -- compressed
    CONSTRAINT traffic_block_pkey PRIMARY KEY (tenant_id, day, writer, number)
) PARTITION BY RANGE (day);

ALTER TABLE traffic_block ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE traffic_block_default PARTITION OF traffic_block DEFAULT;

CREATE INDEX traffic_block_at_idx ON traffic_block (tenant_id, day, first_at, writer, number);

CREATE TABLE traffic_day (
    tenant_id bigint      NOT NULL,
    day       date        NOT NULL,
    blocks    bigint      NOT NULL,
    bytes     bigint      NOT NULL,
    checks    bigint      NOT NULL,
    seen      bigint      NOT NULL,
    left_out  bigint      NOT NULL,
    dropped   bigint      NOT NULL,
    level     smallint    NOT NULL, -- of the latest block
    first_at  timestamptz NOT NULL,
    last_at   timestamptz NOT NULL,
    CONSTRAINT traffic_day_pkey PRIMARY KEY (tenant_id, day)
);

CREATE INDEX traffic_day_day_idx ON traffic_day (day);

-- A user's month, in UTC, has a row for each meter. The row of the meter requests counts all checks; the row of another
-- meter counts the checks that have a cost for it.
CREATE TABLE user_month (
    tenant_id  bigint  NOT NULL,
    month      date    NOT NULL, -- its first day
    user_id    text    NOT NULL COLLATE "C", -- '' for checks without a user
    allowed    bigint  NOT NULL,
    denied     bigint  NOT NULL,
    cost_taken numeric NOT NULL, -- of the allowed ones, in tokens
    meter      text    NOT NULL DEFAULT '' COLLATE "C", -- '': requests
    CONSTRAINT user_month_pkey PRIMARY KEY (tenant_id, month, user_id, meter)
);

CREATE TABLE month_users (
    tenant_id bigint NOT NULL,
    month     date   NOT NULL, -- its first day
    users     bigint NOT NULL,
    CONSTRAINT month_users_pkey PRIMARY KEY (tenant_id, month)
);

CREATE TABLE replay (
    tenant_id         bigint           NOT NULL,
    replay_id         bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    requested_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    requested_by_kind text             NOT NULL,
    requested_by_id   text             NOT NULL COLLATE "C",
    requested_by_name text             NOT NULL,
    request           jsonb            NOT NULL, -- see the package replay
    state             text             NOT NULL DEFAULT 'waiting',
    progress          double precision NOT NULL DEFAULT 0, -- 0 to 1
    is_canceled       boolean          NOT NULL DEFAULT false, -- somebody asked for it
    claim             bigint           NOT NULL DEFAULT 0, -- of the job that runs it
    started_at        timestamptz,
    finished_at       timestamptz,
    failure           text             NOT NULL DEFAULT '',
    result            jsonb,
    CONSTRAINT replay_pkey PRIMARY KEY (tenant_id, replay_id),
    CONSTRAINT replay_state_check CHECK (state IN ('waiting', 'running', 'done', 'failed', 'canceled'))
);

CREATE INDEX replay_requested_idx ON replay (requested_at);

-- audit_replay logs no request and no result, because these can name users, and are erased with the replay.
CREATE FUNCTION audit_replay() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    image jsonb := jsonb_build_object('replay_id', NEW.replay_id, 'kind', NEW.request->'kind',
        'since', NEW.request->'since', 'until', NEW.request->'until', 'is_canceled', NEW.is_canceled);
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM write_audit(NEW.tenant_id, 'create', 'replay', NEW.replay_id::text, NULL, image);
    ELSIF NEW.is_canceled AND NOT OLD.is_canceled THEN
        PERFORM write_audit(NEW.tenant_id, 'update', 'replay', NEW.replay_id::text, image || '{"is_canceled": false}',
            image);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER replay_audit AFTER INSERT OR UPDATE OF is_canceled ON replay
    FOR EACH ROW EXECUTE FUNCTION audit_replay();

CREATE TABLE scheduled_change (
    tenant_id         bigint      NOT NULL,
    change_id         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    requested_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by_kind text        NOT NULL,
    requested_by_id   text        NOT NULL COLLATE "C",
    requested_by_name text        NOT NULL,
    patch             jsonb       NOT NULL, -- all that was asked for, for the audit log
    starts_at         timestamptz NOT NULL,
    ends_at           timestamptz, -- null: it stays
    state             text        NOT NULL DEFAULT 'waiting',
    due_at            timestamptz, -- when the next step is due; null if no step is left
    applied_at        timestamptz,
    ended_at          timestamptz,
    failure           text        NOT NULL DEFAULT '',
    title             text        NOT NULL DEFAULT '',
    CONSTRAINT scheduled_change_pkey PRIMARY KEY (tenant_id, change_id),
    CONSTRAINT scheduled_change_state_check CHECK (state IN ('waiting', 'in_force', 'done', 'edited', 'failed',
        'canceled')),
    CONSTRAINT scheduled_change_ends_at_check CHECK (ends_at > starts_at),
    CONSTRAINT scheduled_change_due_at_check CHECK ((due_at IS NOT NULL) = (state IN ('waiting', 'in_force')))
);

CREATE INDEX scheduled_change_open_idx ON scheduled_change (tenant_id, due_at, change_id) WHERE due_at IS NOT NULL;

CREATE TABLE scheduled_change_rule (
    tenant_id bigint NOT NULL,
    change_id bigint NOT NULL,
    rule_id   bigint NOT NULL,
    patch     jsonb  NOT NULL, -- as it was asked for, for people
    fields    jsonb  NOT NULL, -- the values that the change sets
    before    jsonb, -- the values that it replaced
    failure   text   NOT NULL DEFAULT '', -- why it was left out, for people
    CONSTRAINT scheduled_change_rule_pkey PRIMARY KEY (tenant_id, change_id, rule_id),
    CONSTRAINT scheduled_change_rule_change_fkey FOREIGN KEY (tenant_id, change_id)
        REFERENCES scheduled_change (tenant_id, change_id) ON DELETE CASCADE,
    CONSTRAINT scheduled_change_rule_rule_fkey FOREIGN KEY (tenant_id, rule_id)
        REFERENCES rate_limit_rule (tenant_id, rule_id)
);

CREATE INDEX scheduled_change_rule_rule_idx ON scheduled_change_rule (tenant_id, rule_id, change_id);

CREATE TRIGGER scheduled_change_audit AFTER INSERT OR UPDATE OF state ON scheduled_change
    FOR EACH ROW EXECUTE FUNCTION audit_change('scheduled_change', 'change_id');

CREATE TABLE api_process (
    process_id      text        NOT NULL COLLATE "C", -- of one run
    name            text        NOT NULL COLLATE "C",
    version         text        NOT NULL,
    started_at      timestamptz NOT NULL,
    reported_at     timestamptz NOT NULL DEFAULT now(),
    rules_loaded    boolean     NOT NULL,
    rules           bigint      NOT NULL,
    rules_age_ms    bigint      NOT NULL,
    database        text        NOT NULL,
    redis           text        NOT NULL,
    checks          bigint      NOT NULL, -- since the previous report
    degraded        bigint      NOT NULL, -- of these, decided without Redis
    span_ms         bigint      NOT NULL, -- the length of that time
    redis_down      text[]      NOT NULL DEFAULT '{}', -- the nodes of a Redis Cluster that do not answer
    algorithms      text[]      NOT NULL, -- that it knows
    CONSTRAINT api_process_pkey PRIMARY KEY (process_id)
);

-- Changes to accounts, and the creation, suspension and removal of tenants, which no tenant's log can still show.
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

-- audit_platform_change takes the kind of object and the column of its id. The log shows only that a password hash
-- changed, and nothing of a key's digest.
CREATE FUNCTION audit_platform_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hidden CONSTANT text[] := '{revision,version,updated_at,password_hash,digest,last_used_at}';
    actor  jsonb := audit_actor();
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
    INSERT INTO platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id,
        before, after)
    VALUES (coalesce(actor->>'kind', ''), coalesce(actor->>'id', ''), coalesce(actor->>'name', ''),
        coalesce(actor->>'act', ''),
        coalesce(actor->>'request_id', ''), action, TG_ARGV[0], object->>TG_ARGV[1], before, after);
    RETURN NULL;
END
$$;

CREATE TRIGGER account_platform_audit AFTER INSERT OR UPDATE OR DELETE ON account
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('account', 'account_id');
CREATE TRIGGER account_identity_platform_audit AFTER INSERT OR UPDATE OR DELETE ON account_identity
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('identity', 'identity_id');
CREATE TRIGGER tenant_platform_audit_created AFTER INSERT OR DELETE ON tenant
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('tenant', 'slug');
CREATE TRIGGER tenant_platform_audit AFTER UPDATE ON tenant FOR EACH ROW
    WHEN (OLD.suspended_at IS DISTINCT FROM NEW.suspended_at OR OLD.removed_at IS DISTINCT FROM NEW.removed_at)
    EXECUTE FUNCTION audit_platform_change('tenant', 'slug');

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
    kept_at         timestamptz, -- see api_key
    CONSTRAINT service_key_pkey PRIMARY KEY (key_id),
    CONSTRAINT service_key_key_id_check CHECK (key_id ~ '^svc[0-9a-f]{16}$'),
    CONSTRAINT service_key_name_check CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT service_key_digest_check CHECK (octet_length(digest) = 32),
    CONSTRAINT service_key_networks_check CHECK (cardinality(networks) <= 50),
    CONSTRAINT service_key_permissions_check CHECK (permissions <@ ARRAY[
        'read', 'rules', 'users', 'settings', 'members', 'keys', 'alerts', 'manage', 'tenants', 'accounts'])
);

CREATE INDEX service_key_created_at_idx ON service_key (created_at, key_id);

CREATE TRIGGER service_key_platform_audit AFTER INSERT OR UPDATE OR DELETE ON service_key
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('service_key', 'key_id');

CREATE TABLE key_notice (
    tenant_id bigint      NOT NULL, -- 0 for service keys
    key_id    text        NOT NULL COLLATE "C",
    notice    text        NOT NULL,
    told_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT key_notice_pkey PRIMARY KEY (tenant_id, key_id, notice),
    CONSTRAINT key_notice_notice_check CHECK (notice IN ('expires_14', 'expires_7', 'expires_1', 'creator_left'))
);

CREATE TABLE job (
    tenant_id     bigint      NOT NULL, -- 0 for the platform's own
    job_id        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind          text        NOT NULL COLLATE "C",
    about         text        NOT NULL DEFAULT '' COLLATE "C", -- an id; never a user's
    state         text        NOT NULL DEFAULT 'waiting', -- parked: the last attempt failed
    next_run_at   timestamptz NOT NULL, -- during an attempt, when another process may take over
    lease_ends_at timestamptz, -- null: it is not attempted now
    claim         bigint      NOT NULL DEFAULT 0, -- counts claims; only the holder of the last one may store a result
    attempts      integer     NOT NULL DEFAULT 0, -- since the last success
    error         text        NOT NULL DEFAULT '', -- of the latest attempt
    last_run_at   timestamptz, -- when the latest attempt ended
    took_ms       bigint      NOT NULL DEFAULT 0, -- that attempt
    created_at    timestamptz NOT NULL DEFAULT now(),
    due_at        timestamptz, -- of a periodic job: when it fell due; kept until a run finishes all work
    CONSTRAINT job_pkey PRIMARY KEY (tenant_id, job_id),
    CONSTRAINT job_job_id_key UNIQUE (job_id),
    CONSTRAINT job_about_key UNIQUE (tenant_id, kind, about),
    CONSTRAINT job_state_check CHECK (state IN ('waiting', 'parked'))
);

CREATE INDEX job_due_idx ON job (kind, tenant_id, next_run_at, job_id) WHERE state = 'waiting';
CREATE INDEX job_parked_idx ON job (job_id) WHERE state = 'parked';

CREATE FUNCTION enqueue_audit_webhook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job (tenant_id, kind, next_run_at)
    SELECT w.tenant_id, 'audit webhook', clock_timestamp() FROM audit_webhook AS w
    WHERE w.is_active AND w.tenant_id IN (SELECT n.tenant_id FROM new_rows AS n)
    ON CONFLICT (tenant_id, kind, about) DO NOTHING;
    RETURN NULL;
END
$$;

CREATE TRIGGER audit_event_job AFTER INSERT ON audit_event
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION enqueue_audit_webhook();

-- Requests that may be repeated: see the package auth, Once. A row reveals neither a request's Idempotency-Key nor its
-- answer.
CREATE TABLE idempotency (
    tenant_id     bigint      NOT NULL, -- 0 for requests about no tenant
    key_digest    bytea       NOT NULL,
    caller        text        NOT NULL COLLATE "C", -- the kind and id of the actor
    fingerprint   bytea       NOT NULL, -- of the caller, the address and the body
    attempt       bigint      NOT NULL, -- counts those who began it, of whom only the last may commit
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_ends_at timestamptz NOT NULL, -- when another attempt may begin, unless this one has committed
    committed     boolean     NOT NULL DEFAULT false, -- written in the transaction of the change
    answer        bytea, -- encrypted by a key that is derived from the Idempotency-Key; null: there is none yet
    number        bigint      NOT NULL, -- counts the caller's requests
    CONSTRAINT idempotency_pkey PRIMARY KEY (tenant_id, key_digest),
    CONSTRAINT idempotency_key_digest_check CHECK (octet_length(key_digest) = 32),
    CONSTRAINT idempotency_fingerprint_check CHECK (octet_length(fingerprint) = 32)
);

CREATE INDEX idempotency_started_idx ON idempotency (started_at);
CREATE INDEX idempotency_caller_idx ON idempotency (tenant_id, caller, number);

-- Buckets of deployments without Redis: see internal/store/pgbucket. No column but the key is indexed, and pages have
-- room, so that PostgreSQL updates a row within its page.
CREATE UNLOGGED TABLE bucket (
    tenant_id bigint NOT NULL,
    rule_id   bigint NOT NULL,
    subject   bytea  NOT NULL, -- long ones by their digest
    state     bytea  NOT NULL,
    full_at   bigint NOT NULL, -- when the row may be removed, in microseconds since the Unix epoch
    CONSTRAINT bucket_pkey PRIMARY KEY (tenant_id, rule_id, subject)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- The latest known states of buckets of long limits, which outlive their store. A row with the rule 0 marks an erased
-- user by the SHA-256 of the id: nothing from before its stamp, and no later settlement, is stored.
CREATE TABLE bucket_checkpoint (
    tenant_id bigint NOT NULL,
    rule_id   bigint NOT NULL, -- below 0: of a check's own limit
    subject   bytea  NOT NULL, -- long ones by their digest
    stamp     bigint NOT NULL, -- when the state was known, in microseconds since the Unix epoch; the later counts
    state     bytea  NOT NULL, -- see internal/enforce/format.go
    owner     bytea, -- the SHA-256 of the id of the user whose bucket it is; null for one that users share
    CONSTRAINT bucket_checkpoint_pkey PRIMARY KEY (tenant_id, rule_id, subject)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX bucket_checkpoint_owner_idx ON bucket_checkpoint (tenant_id, owner) WHERE owner IS NOT NULL;

CREATE UNLOGGED TABLE bucket_credit (
    tenant_id    bigint NOT NULL,
    credit_id    bytea  NOT NULL,
    fingerprint  bytea  NOT NULL,
    answer       bytea  NOT NULL,
    forgotten_at bigint NOT NULL, -- in microseconds since the Unix epoch
    CONSTRAINT bucket_credit_pkey PRIMARY KEY (tenant_id, credit_id)
) WITH (vacuum_truncate = off);

-- A row of bucket with the rule 0 counts a tenant's records and reservations.
CREATE UNLOGGED TABLE bucket_record (
    tenant_id    bigint NOT NULL,
    record_id    bytea  NOT NULL,
    forgotten_at bigint NOT NULL, -- in microseconds since the Unix epoch
    CONSTRAINT bucket_record_pkey PRIMARY KEY (tenant_id, record_id)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

CREATE UNLOGGED TABLE bucket_reservation (
    tenant_id      bigint NOT NULL,
    reservation_id bytea  NOT NULL,
    record         bytea  NOT NULL, -- what its check took; see internal/store/pgbucket
    ends_at        bigint NOT NULL, -- in microseconds since the Unix epoch
    CONSTRAINT bucket_reservation_pkey PRIMARY KEY (tenant_id, reservation_id)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX bucket_reservation_ends_at_idx ON bucket_reservation (tenant_id, ends_at);

CREATE FUNCTION drop_rows_before(relation text, at_column text, before timestamptz, at_most integer) RETURNS bigint
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    dropped bigint;
BEGIN
    EXECUTE format('DELETE FROM public.%1$I WHERE ctid = ANY (ARRAY(
        SELECT old.ctid FROM public.%1$I AS old WHERE old.%2$I < $1 LIMIT $2))', relation, at_column)
        USING before, at_most;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END
$$;

REVOKE ALL ON FUNCTION drop_rows_before(text, text, timestamptz, integer) FROM PUBLIC;

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
        SELECT first.audit_id FROM (SELECT e.audit_id, e.at FROM public.platform_audit_event AS e ORDER BY e.audit_id
            LIMIT at_most) AS first
        WHERE first.at < older_than
    );
    GET DIAGNOSTICS of_platform = ROW_COUNT;
    PERFORM set_config('sluice.audit_upkeep', '', true);
    RETURN greatest(of_tenants, of_platform);
END
$$;

-- erase_from_audit_image marks the image, which nobody may then undo.
CREATE FUNCTION erase_from_audit_image(image jsonb, alias text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT image || '{"erased": true}'
        || CASE WHEN image ? 'user_id' THEN jsonb_build_object('user_id', alias) ELSE '{}' END
        || CASE WHEN image ? 'reason' THEN '{"reason": ""}'::jsonb ELSE '{}' END
$$;

-- erase_user_from_audit also empties the reasons of the user's overrides, which people write about persons.
CREATE FUNCTION erase_user_from_audit(of_tenant bigint, erased text, alias text, after_id bigint, up_to bigint)
    RETURNS bigint
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
        before = public.erase_from_audit_image(e.before, alias), after = public.erase_from_audit_image(e.after, alias)
    WHERE e.tenant_id = of_tenant AND e.audit_id > after_id AND e.audit_id <= up_to AND e.rows IS NULL
        AND (e.object_kind = 'user' AND e.object_id = erased
        OR e.object_kind IN ('override', 'bucket') AND (e.before->>'user_id' = erased OR e.after->>'user_id' = erased));
    GET DIAGNOSTICS changed = ROW_COUNT;
    -- The next statement computes rows from a snapshot, so nobody else may change them meanwhile.
    PERFORM FROM public.audit_event AS e
    WHERE e.tenant_id = of_tenant AND e.audit_id > after_id AND e.audit_id <= up_to AND e.rows IS NOT NULL
    ORDER BY e.audit_id
    FOR UPDATE;
    WITH packed AS (
        SELECT e.audit_id, becomes.rows FROM public.audit_event AS e
        CROSS JOIN LATERAL (
            SELECT bool_or(r.is_theirs) AS is_theirs, jsonb_agg(CASE WHEN r.is_theirs THEN jsonb_build_object(
                'id', CASE e.object_kind WHEN 'user' THEN '' ELSE split_part(r.row->>'id', ':', 1) || ':' END || alias,
                'before', public.erase_from_audit_image(nullif(r.row->'before', 'null'), alias),
                'after', public.erase_from_audit_image(nullif(r.row->'after', 'null'), alias)
                ) ELSE r.row END ORDER BY r.number) AS rows
            FROM (
                SELECT a.row, a.number,
                    erased IN (a.row->'before'->>'user_id', a.row->'after'->>'user_id') AS is_theirs
                FROM jsonb_array_elements(e.rows) WITH ORDINALITY AS a (row, number)
            ) AS r
        ) AS becomes
        WHERE e.tenant_id = of_tenant AND e.audit_id > after_id AND e.audit_id <= up_to AND e.rows IS NOT NULL
            AND becomes.is_theirs
    ), written AS (
        UPDATE public.audit_event AS e SET rows = p.rows FROM packed AS p
        WHERE e.tenant_id = of_tenant AND e.audit_id = p.audit_id
        RETURNING e.audit_id
    )
    SELECT changed + count(*) INTO changed FROM written;
    PERFORM set_config('sluice.audit_upkeep', '', true);
    RETURN changed;
END
$$;

REVOKE ALL ON FUNCTION drop_audit_events(timestamptz, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION erase_user_from_audit(bigint, text, text, bigint, bigint) FROM PUBLIC;

-- A job takes the user out of one kind of records after the other; each piece and the row are one transaction. A
-- finished one is a receipt, and names nobody.
CREATE TABLE user_erasure (
    tenant_id    bigint      NOT NULL,
    erasure_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    receipt_id   text        NOT NULL COLLATE "C", -- stands in the audit log for the user's id
    user_id      text        COLLATE "C", -- null once it has finished
    actor        text        NOT NULL, -- who asked for it; see audit_actor
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    steps        jsonb       NOT NULL DEFAULT '[]', -- those that have begun: see the package pgstore
    rules        bigint[]    NOT NULL DEFAULT '{}', -- those whose pattern names the user
    error        text        NOT NULL DEFAULT '', -- why the latest try failed, for people
    finished_at  timestamptz,
    CONSTRAINT user_erasure_pkey PRIMARY KEY (tenant_id, erasure_id),
    CONSTRAINT user_erasure_receipt_key UNIQUE (tenant_id, receipt_id),
    CONSTRAINT user_erasure_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT user_erasure_finished_check CHECK ((user_id IS NULL) = (finished_at IS NOT NULL))
);

CREATE UNIQUE INDEX user_erasure_open_key ON user_erasure (tenant_id, user_id) WHERE user_id IS NOT NULL;
CREATE INDEX user_erasure_finished_idx ON user_erasure (finished_at);

-- A job writes a file in pieces; each chunk and where it ends are one transaction. A file is deleted a day after it was
-- finished, when its maker exports more, and when a user of the tenant is erased.
CREATE TABLE export (
    tenant_id         bigint      NOT NULL,
    export_id         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    requested_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by_kind text        NOT NULL,
    requested_by_id   text        NOT NULL COLLATE "C",
    request           json        NOT NULL, -- of any text, NUL too; see the package adminapi, exportRequest
    place             text        NOT NULL DEFAULT '', -- where it goes on
    restarts          integer     NOT NULL DEFAULT 0, -- by erasures of users
    chunks            integer     NOT NULL DEFAULT 0,
    rows              bigint      NOT NULL DEFAULT 0,
    bytes             bigint      NOT NULL DEFAULT 0, -- of its chunks
    error             text        NOT NULL DEFAULT '', -- why the latest try failed, for people
    finished_at       timestamptz, -- with an error, it failed for good and has no file
    CONSTRAINT export_pkey PRIMARY KEY (tenant_id, export_id),
    CONSTRAINT export_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);

CREATE INDEX export_finished_idx ON export (finished_at);

CREATE TABLE export_chunk (
    tenant_id bigint  NOT NULL,
    export_id bigint  NOT NULL,
    number    integer NOT NULL,
    data      bytea   NOT NULL, -- compressed by gzip
    CONSTRAINT export_chunk_pkey PRIMARY KEY (tenant_id, export_id, number),
    CONSTRAINT export_chunk_export_fkey FOREIGN KEY (tenant_id, export_id)
        REFERENCES export (tenant_id, export_id) ON DELETE CASCADE
);

ALTER TABLE export_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

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

-- Programs may only add entries to the security log.
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
        SELECT e.at, e.access_id FROM public.access_event AS e WHERE e.at < older_than ORDER BY e.at, e.access_id
            LIMIT at_most);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END
$$;

REVOKE ALL ON FUNCTION drop_access_events(timestamptz, integer) FROM PUBLIC;

-- Receipts of removed tenants' rows, which stay. The tenant's own row stays too, without its name, because its slug is
-- never used again.
CREATE TABLE tenant_erasure (
    slug      text        NOT NULL COLLATE "C",
    of_tenant bigint      NOT NULL,
    began_at  timestamptz NOT NULL DEFAULT now(), -- from then on the tenant cannot be restored
    done_at   timestamptz, -- null: rows are left
    rows      jsonb       NOT NULL DEFAULT '{}', -- how many were erased, by table
    CONSTRAINT tenant_erasure_pkey PRIMARY KEY (of_tenant),
    CONSTRAINT tenant_erasure_tenant_fkey FOREIGN KEY (of_tenant) REFERENCES tenant (tenant_id)
);

-- erase_removed_tenant finds all tables with a column tenant_id in the catalog, so that no new one is forgotten. The
-- audit log comes last, because other deletions write to it.
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
    UPDATE public.account SET email = 'erased-' || account_id || '@invalid', name = '', password_hash = '',
        disabled_at = now(), second_factor_at = NULL, recovery_codes_at = NULL
    WHERE unproven_in = removed_tenant AND email <> 'erased-' || account_id || '@invalid';
    DELETE FROM public.session AS s USING public.account AS a WHERE a.account_id = s.account_id
        AND a.unproven_in = removed_tenant;
    DELETE FROM public.mailed_link AS l USING public.account AS a WHERE a.account_id = l.account_id
        AND a.unproven_in = removed_tenant;
    DELETE FROM public.pending_sign_in AS p USING public.account AS a WHERE a.account_id = p.account_id
        AND a.unproven_in = removed_tenant;
    DELETE FROM public.account_identity AS i USING public.account AS a WHERE a.account_id = i.account_id
        AND a.unproven_in = removed_tenant;
    DELETE FROM public.second_factor AS f USING public.account AS a WHERE a.account_id = f.account_id
        AND a.unproven_in = removed_tenant;
    DELETE FROM public.recovery_code AS c USING public.account AS a WHERE a.account_id = c.account_id
        AND a.unproven_in = removed_tenant;
    UPDATE public.access_event SET tenant_id = 0 WHERE (at, access_id) IN (
        SELECT e.at, e.access_id FROM public.access_event AS e WHERE e.tenant_id = removed_tenant LIMIT at_most);
    GET DIAGNOSTICS erased = ROW_COUNT;
    IF erased > 0 THEN
        RETURN false;
    END IF;
    FOR owned IN
        WITH RECURSIVE own AS (
            SELECT c.oid FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
                AND NOT a.attisdropped
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'tenant'
        ), refers AS (
            SELECT conrelid AS child, confrelid AS parent FROM pg_constraint
            WHERE contype = 'f' AND conrelid <> confrelid AND conrelid IN (SELECT oid FROM own)
        ), depth AS (
            SELECT oid, 0 AS d FROM own
            UNION ALL SELECT refers.parent, depth.d + 1 FROM depth JOIN refers ON refers.child = depth.oid
                WHERE depth.d < 20
        )
        SELECT depth.oid::regclass::text FROM depth JOIN own USING (oid)
        GROUP BY depth.oid
        ORDER BY depth.oid = 'public.audit_event'::regclass, max(depth.d), depth.oid::regclass::text
    LOOP
        PERFORM set_config('sluice.audit_upkeep', CASE WHEN owned = 'audit_event' THEN 'on' ELSE '' END, true);
        EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$s WHERE tenant_id = $1 LIMIT $2))',
            owned)
            USING removed_tenant, at_most;
        GET DIAGNOSTICS erased = ROW_COUNT;
        PERFORM set_config('sluice.audit_upkeep', '', true);
        IF erased > 0 THEN
            owned := regexp_replace(owned, '_([0-9]{8}|default)$', '');
            UPDATE public.tenant_erasure AS e
            SET rows = e.rows || jsonb_build_object(owned, coalesce((e.rows->>owned)::bigint, 0) + erased)
            WHERE e.of_tenant = removed_tenant;
            RETURN false;
        END IF;
    END LOOP;
    INSERT INTO public.platform_audit_event (actor_kind, actor_id, actor_name, act, request_id, action, object_kind,
        object_id, before)
    SELECT 'system', '', 'sluice', 'erase a removed tenant', '', 'remove', 'tenant', e.slug,
        jsonb_build_object('rows', e.rows)
    FROM public.tenant_erasure AS e WHERE e.of_tenant = removed_tenant AND e.done_at IS NULL;
    UPDATE public.tenant_erasure AS e SET done_at = now() WHERE e.of_tenant = removed_tenant AND e.done_at IS NULL;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION erase_removed_tenant(bigint, integer) FROM PUBLIC;

-- Triggers count a tenant's rows and refuse excess ones, so that no writer can forget it.
--
-- default_capacity returns how many of a thing a tenant may hold without an exception; docs/operations.md says why so
-- many.
CREATE FUNCTION default_capacity(thing text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
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

-- The tenant role may only read its exceptions; null is the default.
CREATE TABLE tenant_capacity (
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
    CONSTRAINT tenant_capacity_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenant_capacity_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT tenant_capacity_range_check CHECK (
        least(plans, rules, overrides, users, api_keys, alerts, members) >= 0
        AND greatest(plans, rules, overrides, users, api_keys, alerts, members) <= 1000000000)
);

CREATE TRIGGER tenant_capacity_audit AFTER INSERT OR UPDATE OR DELETE ON tenant_capacity
    FOR EACH ROW EXECUTE FUNCTION audit_change('capacity', 'tenant_id');

-- Functions that run with the rights of the tables' owner write these counts, so the programs' roles need no right to.
CREATE TABLE tenant_use (
    tenant_id bigint NOT NULL,
    thing     text   NOT NULL COLLATE "C",
    held      bigint NOT NULL,
    CONSTRAINT tenant_use_pkey PRIMARY KEY (tenant_id, thing),
    CONSTRAINT tenant_use_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT tenant_use_held_check CHECK (held >= 0)
);

CREATE INDEX api_key_live_idx ON api_key (tenant_id, expires_at) WHERE revoked_at IS NULL;

CREATE FUNCTION count_held(of_tenant bigint, of_thing text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE of_thing
        WHEN 'plans' THEN (SELECT count(*) FROM plan AS p WHERE p.tenant_id = of_tenant AND p.removed_at IS NULL)
        WHEN 'rules' THEN (SELECT count(*) FROM rate_limit_rule AS r WHERE r.tenant_id = of_tenant
            AND r.removed_at IS NULL)
        WHEN 'overrides' THEN (SELECT count(*) FROM rate_limit_override AS o WHERE o.tenant_id = of_tenant
            AND o.removed_at IS NULL)
        WHEN 'users' THEN (SELECT coalesce(sum(u.users), 0)::bigint FROM plan_use AS u WHERE u.tenant_id = of_tenant)
        WHEN 'api_keys' THEN (SELECT count(*) FROM api_key AS k
            WHERE k.tenant_id = of_tenant AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()))
        WHEN 'alerts' THEN (SELECT count(*) FROM alert AS a WHERE a.tenant_id = of_tenant)
        WHEN 'members' THEN (SELECT count(*) FROM member AS m WHERE m.tenant_id = of_tenant)
    END
$$;

-- change_held never refuses less, so a lowered capacity only stops growth. The row's lock makes the second of two
-- writers see what the first has added.
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
        UPDATE tenant_use AS u SET held = greatest(0, u.held + change)
        WHERE u.tenant_id = of_tenant AND u.thing = of_thing RETURNING u.held INTO now_held;
        IF NOT FOUND AND change <= 0 THEN
            RETURN;
        ELSIF NOT FOUND THEN
            INSERT INTO tenant_use AS u (tenant_id, thing, held)
                VALUES (of_tenant, of_thing, count_held(of_tenant, of_thing))
            ON CONFLICT (tenant_id, thing) DO UPDATE SET held = u.held + change RETURNING u.held INTO now_held;
        END IF;
    END IF;
    IF change <= 0 THEN
        RETURN;
    END IF;
    SELECT (to_jsonb(q)->>of_thing)::bigint INTO may_hold FROM tenant_capacity AS q WHERE q.tenant_id = of_tenant;
    may_hold := coalesce(may_hold, default_capacity(of_thing));
    IF now_held > may_hold THEN
        RAISE EXCEPTION 'tenant % may hold % %, and would hold %', of_tenant, may_hold, of_thing, now_held
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tenant_capacity', DETAIL = jsonb_build_object(
                'thing', of_thing, 'held', now_held - change, 'would_hold', now_held, 'allowed', may_hold);
    END IF;
END
$$;

-- recount_held corrects counts after SQL by hand, which can miss the triggers. The lock on the tenant keeps
-- count_held_now from correcting the same number. SQL by hand waits at the row of tenant_use.
CREATE FUNCTION recount_held(of_tenant bigint, of_thing text) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    PERFORM FROM tenant AS t WHERE t.tenant_id = of_tenant FOR NO KEY UPDATE;
    PERFORM FROM tenant_use AS u WHERE u.tenant_id = of_tenant AND u.thing = of_thing FOR UPDATE;
    UPDATE tenant_use AS u SET held = count_held(of_tenant, of_thing) WHERE u.tenant_id = of_tenant
        AND u.thing = of_thing;
END
$$;

-- count_held_rows is for tables whose rows are marked removed. A transaction that writes many rows one by one runs
-- count_held_later before and count_held_now after.
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

-- count_held_later leaves counting to count_held_now: each version of a row that one transaction writes slows down the
-- next.
CREATE FUNCTION count_held_later(of_tenant bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    IF of_tenant::text <> coalesce(current_setting('sluice.tenant', true), '') THEN
        RAISE EXCEPTION 'another tenant''s things' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO tenant_use (tenant_id, thing, held)
    SELECT of_tenant, t.thing, count_held(of_tenant, t.thing)
        FROM unnest('{plans,rules,overrides}'::text[]) AS t (thing)
    WHERE NOT EXISTS (SELECT FROM tenant_use AS u WHERE u.tenant_id = of_tenant AND u.thing = t.thing)
    ON CONFLICT DO NOTHING;
    PERFORM set_config('sluice.count_held', 'later', true);
END
$$;

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

REVOKE ALL ON FUNCTION change_held(bigint, text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION recount_held(bigint, text) FROM PUBLIC;

CREATE TRIGGER plan_within_capacity_insert AFTER INSERT ON plan
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('plans');
CREATE TRIGGER plan_within_capacity_update AFTER UPDATE ON plan
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
        EXECUTE FUNCTION count_held_rows('plans');
CREATE TRIGGER plan_within_capacity_delete AFTER DELETE ON plan
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('plans');
CREATE TRIGGER rate_limit_rule_within_capacity_insert AFTER INSERT ON rate_limit_rule
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('rules');
CREATE TRIGGER rate_limit_rule_within_capacity_update AFTER UPDATE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
        EXECUTE FUNCTION count_held_rows('rules');
CREATE TRIGGER rate_limit_rule_within_capacity_delete AFTER DELETE ON rate_limit_rule
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('rules');
CREATE TRIGGER rate_limit_override_within_capacity_insert AFTER INSERT ON rate_limit_override
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('overrides');
CREATE TRIGGER rate_limit_override_within_capacity_update AFTER UPDATE ON rate_limit_override
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
        EXECUTE FUNCTION count_held_rows('overrides');
CREATE TRIGGER rate_limit_override_within_capacity_delete AFTER DELETE ON rate_limit_override
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('overrides');
-- Triggers run in the order of their names, these after those that keep plan_use.
CREATE TRIGGER plan_assignment_within_capacity_insert AFTER INSERT ON plan_assignment
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('users');
CREATE TRIGGER plan_assignment_within_capacity_update AFTER UPDATE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
        EXECUTE FUNCTION count_held_rows('users');
CREATE TRIGGER plan_assignment_within_capacity_delete AFTER DELETE ON plan_assignment
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION count_held_rows('users');
CREATE TRIGGER api_key_within_capacity AFTER INSERT ON api_key
    FOR EACH ROW EXECUTE FUNCTION count_held_row('api_keys');
CREATE TRIGGER alert_within_capacity AFTER INSERT OR DELETE ON alert
    FOR EACH ROW EXECUTE FUNCTION count_held_row('alerts');
CREATE TRIGGER member_within_capacity AFTER INSERT OR DELETE ON member
    FOR EACH ROW EXECUTE FUNCTION count_held_row('members');
-- +goose StatementEnd
