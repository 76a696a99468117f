-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS rate_limit_rule_adapt_idx;
CREATE INDEX CONCURRENTLY rate_limit_rule_adapt_idx ON rate_limit_rule (tenant_id, rule_id)
    WHERE adapt_backend IS NOT NULL AND removed_at IS NULL;
