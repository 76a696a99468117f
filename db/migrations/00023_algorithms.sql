-- +goose Up
SET LOCAL lock_timeout = '2s';

-- What limits other than token buckets are made of: windows, steps, places. A column is null where the algorithm has no
-- such thing.
ALTER TABLE rate_limit_rule
    ADD COLUMN window_seconds integer,
    ADD COLUMN window_calendar text,
    ADD COLUMN window_zone text,
    ADD COLUMN window_start_day smallint,
    ADD COLUMN refill_interval_seconds integer,
    ADD COLUMN max_hold_seconds integer,
    ADD COLUMN notify_at smallint[];

-- The next migration validates these constraints, so that no statement reads the table under a lock.
ALTER TABLE rate_limit_rule
    DROP CONSTRAINT rate_limit_rule_algorithm_check,
    DROP CONSTRAINT rate_limit_rule_rate_check,
    DROP CONSTRAINT rate_limit_rule_time_to_full_check;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_algorithm_check CHECK (algorithm IN (
    'token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log', 'concurrency')) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_rate_check CHECK (
    rate_per_second BETWEEN 0 AND 1e9 AND (action <> 'limit' OR CASE
        WHEN algorithm IN ('token_bucket', 'leaky_bucket') THEN rate_per_second >= 1e-6 ELSE rate_per_second = 0 END)) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_listed_check CHECK (
    action <> 'limit' OR algorithm NOT IN ('sliding_window_log', 'concurrency') OR burst_capacity <= 1000) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_time_to_full_check CHECK (
    action <> 'limit' OR rate_per_second = 0 OR burst_capacity <= rate_per_second * 31536001) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_window_check CHECK (
    num_nonnulls(window_seconds, window_calendar)
        = (action = 'limit' AND algorithm IN ('fixed_window', 'sliding_window', 'sliding_window_log'))::integer
    AND window_seconds BETWEEN 1 AND 2678400) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_window_calendar_check CHECK (
    window_calendar IS NULL OR window_calendar IN ('day', 'week', 'month') AND algorithm = 'fixed_window') NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_window_zone_check CHECK (
    window_zone IS NULL OR window_calendar IS NOT NULL AND octet_length(window_zone) BETWEEN 1 AND 64) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_window_start_day_check CHECK (
    window_start_day IS NULL
    OR window_start_day BETWEEN 1 AND CASE window_calendar WHEN 'week' THEN 7 WHEN 'month' THEN 31 ELSE 0 END) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_refill_interval_check CHECK (
    refill_interval_seconds IS NULL
    OR action = 'limit' AND algorithm = 'token_bucket' AND refill_interval_seconds BETWEEN 1 AND 2678400) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_max_hold_check CHECK (
    (max_hold_seconds IS NOT NULL) = (action = 'limit' AND algorithm = 'concurrency')
    AND max_hold_seconds BETWEEN 1 AND 86400) NOT VALID;
ALTER TABLE rate_limit_rule ADD CONSTRAINT rate_limit_rule_notify_at_check CHECK (
    notify_at IS NULL
    OR action = 'limit' AND algorithm = 'fixed_window' AND cardinality(notify_at) BETWEEN 1 AND 5
        AND 1 <= ALL (notify_at) AND 100 >= ALL (notify_at)) NOT VALID;

ALTER TABLE rate_limit_override
    DROP CONSTRAINT rate_limit_override_rate_check,
    DROP CONSTRAINT rate_limit_override_time_to_full_check;
ALTER TABLE rate_limit_override ADD CONSTRAINT rate_limit_override_rate_check CHECK (
    rate_per_second = 0 OR rate_per_second BETWEEN 1e-6 AND 1e9) NOT VALID;
ALTER TABLE rate_limit_override ADD CONSTRAINT rate_limit_override_time_to_full_check CHECK (
    rate_per_second = 0 OR burst_capacity <= rate_per_second * 31536001) NOT VALID;
