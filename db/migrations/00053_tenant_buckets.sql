-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Where a Redis Cluster keeps a tenant's buckets: together on one master, or spread over all of them. It is chosen with the
-- tenant and never changes, because it says where buckets are.
ALTER TABLE tenant
    ADD COLUMN buckets text NOT NULL DEFAULT 'together',
    ADD CONSTRAINT tenant_buckets_check CHECK (buckets IN ('together', 'spread'));
