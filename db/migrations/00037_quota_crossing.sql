-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Crossings of shares of fixed windows' limits: see violations.Crossing. Without foreign keys, like violations. They are
-- written once, except that an earlier time replaces a later one.
CREATE TABLE quota_crossing (
    tenant_id      bigint           NOT NULL,
    rule_id        bigint           NOT NULL,
    subject        text             NOT NULL COLLATE "C", -- longer than 1024 bytes: it ends in its digest
    window_start   timestamptz      NOT NULL,
    share          smallint         NOT NULL, -- percent of the limit
    crossing_id    bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    window_end     timestamptz      NOT NULL,
    crossed_at     timestamptz      NOT NULL,
    recorded_at    timestamptz      NOT NULL DEFAULT now(), -- when it arrived here
    used           double precision NOT NULL, -- in tokens
    burst_capacity bigint           NOT NULL,
    mode           text             NOT NULL,
    rule_name      text             NOT NULL,
    key_pattern    text             NOT NULL,
    user_id        text             COLLATE "C", -- whose bucket it is; null for one that users share
    CONSTRAINT quota_crossing_pkey PRIMARY KEY (tenant_id, rule_id, subject, window_start, share)
);

CREATE INDEX quota_crossing_at_idx ON quota_crossing (tenant_id, crossed_at, crossing_id);
CREATE INDEX quota_crossing_rule_idx ON quota_crossing (tenant_id, rule_id, crossed_at, crossing_id);
CREATE INDEX quota_crossing_user_idx ON quota_crossing (tenant_id, user_id, crossed_at, crossing_id) WHERE user_id IS NOT NULL;
CREATE INDEX quota_crossing_end_idx ON quota_crossing (window_end);
