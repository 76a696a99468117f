-- +goose Up
SET LOCAL lock_timeout = '2s';

-- A tenant's switch for bad days. While it says shadow every rule of the tenant acts as a shadow rule.
ALTER TABLE tenant
    ADD COLUMN enforcement text NOT NULL DEFAULT 'on',
    ADD CONSTRAINT tenant_enforcement_check CHECK (enforcement IN ('on', 'shadow'));
