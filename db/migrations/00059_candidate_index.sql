-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS rate_limit_rule_candidate_key;
CREATE UNIQUE INDEX CONCURRENTLY rate_limit_rule_candidate_key ON rate_limit_rule (tenant_id, candidate_for)
    WHERE candidate_for IS NOT NULL AND removed_at IS NULL;
