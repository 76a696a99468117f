-- +goose Up
SET LOCAL lock_timeout = '2s';

-- What an alert counts. Without a rule it watches every rule.
ALTER TABLE alert
    ADD COLUMN kind text NOT NULL DEFAULT 'denials',
    ALTER COLUMN rule_id DROP NOT NULL;
ALTER TABLE alert ADD CONSTRAINT alert_kind_check CHECK (kind IN ('denials', 'near_limit', 'crossings', 'degraded'));
ALTER TABLE alert ADD CONSTRAINT alert_percent_check CHECK (kind <> 'near_limit' OR threshold <= 100);

-- The rule that a delivery is about; null for checks as a whole, tests, and deliveries of the release before.
ALTER TABLE delivery ADD COLUMN rule_id bigint;

-- Allowed checks that left less than a fifth of the rule's limit. Not known before this release.
ALTER TABLE decision_minute ADD COLUMN near_limit bigint NOT NULL DEFAULT 0;
