-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Whether tokens of a rule's buckets stay in the store instead of being lent to processes.
ALTER TABLE rate_limit_rule ADD COLUMN never_leased boolean NOT NULL DEFAULT false;
