-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS rate_limit_rule_pattern_idx;
CREATE INDEX CONCURRENTLY rate_limit_rule_pattern_idx ON rate_limit_rule (tenant_id, key_pattern, rule_id);
