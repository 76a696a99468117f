-- +goose Up
SET LOCAL lock_timeout = '2s';

-- A change of one rule at a time to come, which can be taken back at another. Values are by column of rate_limit_rule.
CREATE TABLE scheduled_change (
    tenant_id         bigint      NOT NULL,
    change_id         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    rule_id           bigint      NOT NULL,
    requested_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by_kind text        NOT NULL,
    requested_by_id   text        NOT NULL COLLATE "C",
    requested_by_name text        NOT NULL,
    patch             jsonb       NOT NULL, -- as it was asked for, for people
    fields            jsonb       NOT NULL, -- the values that the change sets
    before            jsonb, -- the values that it replaced
    starts_at         timestamptz NOT NULL,
    ends_at           timestamptz, -- null: it stays
    state             text        NOT NULL DEFAULT 'waiting',
    due_at            timestamptz, -- when the next step is due; null if no step is left
    lease_ends_at     timestamptz, -- of the process that makes the next step
    applied_at        timestamptz,
    ended_at          timestamptz,
    failure           text        NOT NULL DEFAULT '',
    CONSTRAINT scheduled_change_pkey PRIMARY KEY (tenant_id, change_id),
    CONSTRAINT scheduled_change_rule_fkey FOREIGN KEY (tenant_id, rule_id) REFERENCES rate_limit_rule (tenant_id, rule_id),
    CONSTRAINT scheduled_change_state_check CHECK (state IN ('waiting', 'in_force', 'done', 'edited', 'failed', 'canceled')),
    CONSTRAINT scheduled_change_ends_at_check CHECK (ends_at > starts_at),
    CONSTRAINT scheduled_change_due_at_check CHECK ((due_at IS NOT NULL) = (state IN ('waiting', 'in_force')))
);

CREATE INDEX scheduled_change_due_idx ON scheduled_change (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX scheduled_change_open_idx ON scheduled_change (tenant_id, due_at, change_id) WHERE due_at IS NOT NULL;
CREATE INDEX scheduled_change_rule_idx ON scheduled_change (tenant_id, rule_id, change_id);

CREATE TRIGGER scheduled_change_audit AFTER INSERT OR UPDATE OF state ON scheduled_change
    FOR EACH ROW EXECUTE FUNCTION audit_change('scheduled_change', 'change_id');
