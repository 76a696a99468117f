-- +goose Up
SET LOCAL lock_timeout = '2s';

-- A scheduled change is of one rule or of many. Its own columns of a single rule are no longer written.
ALTER TABLE scheduled_change
    ALTER COLUMN rule_id DROP NOT NULL,
    ALTER COLUMN fields DROP NOT NULL,
    ADD COLUMN title text NOT NULL DEFAULT '';

CREATE TABLE scheduled_change_rule (
    tenant_id bigint NOT NULL,
    change_id bigint NOT NULL,
    rule_id   bigint NOT NULL,
    patch     jsonb  NOT NULL, -- as it was asked for, for people
    fields    jsonb  NOT NULL, -- the values that the change sets
    before    jsonb, -- the values that it replaced
    failure   text   NOT NULL DEFAULT '', -- why it was left out, for people
    CONSTRAINT scheduled_change_rule_pkey PRIMARY KEY (tenant_id, change_id, rule_id),
    CONSTRAINT scheduled_change_rule_change_fkey FOREIGN KEY (tenant_id, change_id)
        REFERENCES scheduled_change (tenant_id, change_id) ON DELETE CASCADE,
    CONSTRAINT scheduled_change_rule_rule_fkey FOREIGN KEY (tenant_id, rule_id) REFERENCES rate_limit_rule (tenant_id, rule_id)
);

CREATE INDEX scheduled_change_rule_rule_idx ON scheduled_change_rule (tenant_id, rule_id, change_id);

INSERT INTO scheduled_change_rule (tenant_id, change_id, rule_id, patch, fields, before, failure)
SELECT tenant_id, change_id, rule_id, patch, fields, before, failure FROM scheduled_change;
