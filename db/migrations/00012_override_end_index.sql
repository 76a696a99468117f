-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS rate_limit_override_end_idx;
CREATE INDEX CONCURRENTLY rate_limit_override_end_idx ON rate_limit_override (tenant_id, expires_at, rule_id, user_id)
    WHERE removed_at IS NULL AND expires_at IS NOT NULL;
