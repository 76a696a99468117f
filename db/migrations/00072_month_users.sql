-- +goose Up
SET LOCAL lock_timeout = '2s';

-- How many users a tenant has in user_month, by month, so that a month with too many is found without counting them. A row is
-- made when the month is first written to; checks without a user do not count.
CREATE TABLE month_users (
    tenant_id bigint NOT NULL,
    month     date   NOT NULL, -- its first day
    users     bigint NOT NULL,
    CONSTRAINT month_users_pkey PRIMARY KEY (tenant_id, month)
);
