-- +goose Up
SET LOCAL lock_timeout = '2s';

-- What people were told about keys, so that they are told once.
CREATE TABLE key_notice (
    tenant_id bigint      NOT NULL, -- 0 for service keys
    key_id    text        NOT NULL COLLATE "C",
    notice    text        NOT NULL,
    told_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT key_notice_pkey PRIMARY KEY (tenant_id, key_id, notice),
    CONSTRAINT key_notice_notice_check CHECK (notice IN ('expires_14', 'expires_7', 'expires_1', 'creator_left'))
);

-- When somebody decided that a key stays although its creator has left; null: nobody has.
ALTER TABLE api_key ADD COLUMN kept_at timestamptz;
