-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS rate_limit_rule_end_idx;
CREATE INDEX CONCURRENTLY rate_limit_rule_end_idx ON rate_limit_rule (tenant_id, expires_at)
    WHERE expires_at IS NOT NULL AND removed_at IS NULL;
