-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Open reservations, beside their buckets. A row of bucket with the rule 0 counts those of a tenant.
CREATE UNLOGGED TABLE bucket_reservation (
    tenant_id      bigint NOT NULL,
    reservation_id bytea  NOT NULL,
    record         bytea  NOT NULL, -- what its check took; see internal/pgbucket
    ends_at        bigint NOT NULL, -- in microseconds since the Unix epoch
    CONSTRAINT bucket_reservation_pkey PRIMARY KEY (tenant_id, reservation_id)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
CREATE INDEX bucket_reservation_ends_at_idx ON bucket_reservation (tenant_id, ends_at);
