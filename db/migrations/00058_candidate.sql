-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The rule that a shadow rule is tried for; null for other rules. Checks do not depend on it.
ALTER TABLE rate_limit_rule ADD COLUMN candidate_for bigint;
