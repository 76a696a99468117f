-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Requests that may be repeated: see the package auth, Once. Neither a request's Idempotency-Key nor its answer can be read
-- from a row.
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
    CONSTRAINT idempotency_pkey PRIMARY KEY (tenant_id, key_digest),
    CONSTRAINT idempotency_key_digest_check CHECK (octet_length(key_digest) = 32),
    CONSTRAINT idempotency_fingerprint_check CHECK (octet_length(fingerprint) = 32)
);

CREATE INDEX idempotency_started_idx ON idempotency (started_at);
