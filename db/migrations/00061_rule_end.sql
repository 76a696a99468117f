-- +goose Up
SET LOCAL lock_timeout = '2s';

-- From then on the rule matches nothing; null for never.
ALTER TABLE rate_limit_rule ADD COLUMN expires_at timestamptz;
