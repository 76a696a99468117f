-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Reading the table holds no writer back.
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_adapt_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_adapt_backend_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_adapt_floor_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_adapt_p99_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_adapt_error_check;
