-- +goose NO TRANSACTION
-- +goose Up
-- Alerts read the last minutes of one rule.
DROP INDEX CONCURRENTLY IF EXISTS violation_minute_rule_idx;
CREATE INDEX CONCURRENTLY violation_minute_rule_idx ON violation_minute (tenant_id, rule_id, minute);
