-- +goose NO TRANSACTION
-- +goose Up
-- A user's time line asks which rules ever had an override for the user, removed ones too.
DROP INDEX CONCURRENTLY IF EXISTS rate_limit_override_ever_idx;
CREATE INDEX CONCURRENTLY rate_limit_override_ever_idx ON rate_limit_override (tenant_id, user_id, rule_id);
