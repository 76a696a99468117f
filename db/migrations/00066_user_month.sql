-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Recorded checks by user and calendar month in UTC. Without foreign keys, like violations.
CREATE TABLE user_month (
    tenant_id  bigint  NOT NULL,
    month      date    NOT NULL, -- its first day
    user_id    text    NOT NULL COLLATE "C", -- '' for checks without a user
    allowed    bigint  NOT NULL,
    denied     bigint  NOT NULL,
    cost_taken numeric NOT NULL, -- of the allowed ones, in tokens
    CONSTRAINT user_month_pkey PRIMARY KEY (tenant_id, month, user_id)
);
