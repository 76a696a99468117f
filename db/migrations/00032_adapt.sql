-- +goose Up
SET LOCAL lock_timeout = '2s';

-- How a rule's rate follows the health of the backend behind it; null where it does not.
ALTER TABLE rate_limit_rule
    ADD COLUMN adapt_backend text COLLATE "C",
    ADD COLUMN adapt_floor_percent smallint,
    ADD COLUMN adapt_p99_ms integer,
    ADD COLUMN adapt_error_percent double precision;

-- The next migration validates these constraints. None of them names the algorithm: an admin process of the release before
-- may change that of a rule that adapts, and such a rule stops adapting.
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_adapt_check CHECK (
    (adapt_backend IS NULL) = (adapt_floor_percent IS NULL)
    AND (adapt_backend IS NULL) = (num_nonnulls(adapt_p99_ms, adapt_error_percent) = 0)) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_adapt_backend_check CHECK (
    octet_length(adapt_backend) BETWEEN 1 AND 64) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_adapt_floor_check CHECK (
    adapt_floor_percent BETWEEN 1 AND 99) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_adapt_p99_check CHECK (
    adapt_p99_ms BETWEEN 1 AND 60000) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_adapt_error_check CHECK (
    adapt_error_percent BETWEEN 0.01 AND 50) NOT VALID;

-- A tenant's switch: every rule keeps its configured rate.
ALTER TABLE tenant ADD COLUMN fixed_rates boolean NOT NULL DEFAULT false;

CREATE TABLE rate_limit_step (
    tenant_id      bigint      NOT NULL,
    rule_id        bigint      NOT NULL,
    percent        smallint    NOT NULL,
    stepped_at     timestamptz NOT NULL,
    in_force_since timestamptz NOT NULL,
    ends_at        timestamptz NOT NULL,
    cause          text        NOT NULL,
    memory         text        NOT NULL,
    revision       bigint      NOT NULL,
    CONSTRAINT rate_limit_step_pkey PRIMARY KEY (tenant_id, rule_id),
    CONSTRAINT rate_limit_step_rule_fkey FOREIGN KEY (tenant_id, rule_id) REFERENCES rate_limit_rule (tenant_id, rule_id),
    CONSTRAINT rate_limit_step_percent_check CHECK (percent BETWEEN 1 AND 100),
    CONSTRAINT rate_limit_step_ends_at_check CHECK (ends_at > in_force_since)
);

CREATE INDEX rate_limit_step_revision_idx ON rate_limit_step (tenant_id, revision, rule_id);
CREATE INDEX rate_limit_step_ends_at_idx ON rate_limit_step (ends_at);

CREATE UNLOGGED TABLE backend_report (
    tenant_id bigint      NOT NULL,
    backend   text        NOT NULL COLLATE "C",
    slice     timestamptz NOT NULL,
    requests  bigint      NOT NULL,
    errors    bigint      NOT NULL,
    latency   bigint[]    NOT NULL,
    CONSTRAINT backend_report_pkey PRIMARY KEY (tenant_id, backend, slice)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, vacuum_truncate = off);

CREATE INDEX backend_report_slice_idx ON backend_report (slice);

-- +goose StatementBegin
CREATE FUNCTION add_counts(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(coalesce(u.a, 0) + coalesce(u.b, 0) ORDER BY u.place) FROM unnest(a, b) WITH ORDINALITY AS u (a, b, place)
$$;
-- +goose StatementEnd

CREATE TABLE leader (
    role    text        NOT NULL COLLATE "C",
    holder  text        NOT NULL COLLATE "C",
    ends_at timestamptz NOT NULL,
    CONSTRAINT leader_pkey PRIMARY KEY (role)
);
