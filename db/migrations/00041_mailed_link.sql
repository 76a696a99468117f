-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Links that were mailed to accounts. One is used by deleting it.
CREATE TABLE mailed_link (
    account_id   bigint      NOT NULL,
    purpose      text        NOT NULL,
    token_digest bytea       NOT NULL,
    expires_at   timestamptz NOT NULL,
    CONSTRAINT mailed_link_pkey PRIMARY KEY (account_id, purpose), -- a new link replaces the former
    CONSTRAINT mailed_link_token_digest_key UNIQUE (token_digest),
    CONSTRAINT mailed_link_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT mailed_link_token_digest_check CHECK (octet_length(token_digest) = 32)
);
