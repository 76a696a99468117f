-- +goose Up
SET LOCAL lock_timeout = '2s';

-- While a delivery is attempted, until when; null otherwise. Attempts under way are counted by tenant, and one
-- that is under way is not begun again by hand.
ALTER TABLE alert_delivery ADD COLUMN lease_ends_at timestamptz;

-- An alert ends with its rule. Until now those of removed rules stayed on, and could never fire.
SELECT set_config('sluice.actor', '{"kind": "system", "name": "migration", "act": "turn off alerts of removed rules"}', true);
UPDATE alert AS a SET is_active = false, version = a.version + 1, updated_at = now()
FROM rate_limit_rule AS r
WHERE r.tenant_id = a.tenant_id AND r.rule_id = a.rule_id AND r.removed_at IS NOT NULL AND a.is_active;
