-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Reading the tables holds no writer back: no such statement locks them against writers.
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_algorithm_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_rate_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_listed_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_time_to_full_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_window_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_window_calendar_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_window_zone_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_window_start_day_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_refill_interval_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_max_hold_check;
ALTER TABLE rate_limit_rule VALIDATE CONSTRAINT rate_limit_rule_notify_at_check;
ALTER TABLE rate_limit_override VALIDATE CONSTRAINT rate_limit_override_rate_check;
ALTER TABLE rate_limit_override VALIDATE CONSTRAINT rate_limit_override_time_to_full_check;
