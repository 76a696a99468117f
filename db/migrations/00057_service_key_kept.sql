-- +goose Up
SET LOCAL lock_timeout = '2s';

-- When somebody decided that a service key stays although its creator has left; null: nobody has.
ALTER TABLE service_key ADD COLUMN kept_at timestamptz;

-- Who has made keys that still work, and which.
CREATE INDEX api_key_creator_idx ON api_key (tenant_id, created_by_id, key_id)
    WHERE revoked_at IS NULL AND kept_at IS NULL AND created_by_kind = 'account';
