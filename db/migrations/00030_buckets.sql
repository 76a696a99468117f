-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Buckets of deployments without Redis. See internal/pgbucket. No column but the key is indexed, and pages have room, so
-- that PostgreSQL updates a row within its page. A tenant or rule that is gone leaves rows that are removed once full.
CREATE UNLOGGED TABLE bucket (
    tenant_id bigint NOT NULL,
    rule_id   bigint NOT NULL,
    subject   bytea  NOT NULL, -- long ones by their digest
    state     bytea  NOT NULL,
    full_at   bigint NOT NULL, -- when the row may be removed, in microseconds since the Unix epoch
    CONSTRAINT bucket_pkey PRIMARY KEY (tenant_id, rule_id, subject)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- What the store of buckets answered to credits that callers may repeat.
CREATE UNLOGGED TABLE bucket_credit (
    tenant_id    bigint NOT NULL,
    credit_id    bytea  NOT NULL,
    fingerprint  bytea  NOT NULL,
    answer       bytea  NOT NULL,
    forgotten_at bigint NOT NULL, -- in microseconds since the Unix epoch
    CONSTRAINT bucket_credit_pkey PRIMARY KEY (tenant_id, credit_id)
) WITH (vacuum_truncate = off);
