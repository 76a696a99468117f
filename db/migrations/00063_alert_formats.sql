-- +goose Up
SET LOCAL lock_timeout = '2s';

-- How an alert is sent. A Slack alert's secret is its whole URL, and url only names the host; a PagerDuty alert's is its routing key.
ALTER TABLE alert
    ADD COLUMN format text NOT NULL DEFAULT 'webhook',
    ADD COLUMN email  text NOT NULL DEFAULT '' COLLATE "C";
ALTER TABLE alert ADD CONSTRAINT alert_format_check CHECK (format IN ('webhook', 'slack', 'pagerduty', 'email'));

-- The message that carries a delivery, once it is queued; null for other formats.
ALTER TABLE delivery ADD COLUMN mail_id bigint;
