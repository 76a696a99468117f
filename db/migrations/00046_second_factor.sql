-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The second factor of an account. It counts once account.second_factor_at is set; before that, it waits for its first code.
CREATE TABLE second_factor (
    account_id bigint      NOT NULL,
    secret     bytea       NOT NULL, -- sealed under a key that the database does not have
    last_step  bigint      NOT NULL DEFAULT 0, -- codes of this time step and earlier ones are used up
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT second_factor_pkey PRIMARY KEY (account_id),
    CONSTRAINT second_factor_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id)
);

-- Codes for an account whose factor is lost. One is used by deleting it.
CREATE TABLE recovery_code (
    account_id  bigint NOT NULL,
    code_digest bytea  NOT NULL,
    CONSTRAINT recovery_code_pkey PRIMARY KEY (account_id, code_digest),
    CONSTRAINT recovery_code_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT recovery_code_digest_check CHECK (octet_length(code_digest) = 32)
);

-- Sign-ins that wait for the second factor.
CREATE TABLE pending_sign_in (
    token_digest bytea       NOT NULL,
    account_id   bigint      NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    expires_at   timestamptz NOT NULL,
    CONSTRAINT pending_sign_in_pkey PRIMARY KEY (token_digest),
    CONSTRAINT pending_sign_in_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT pending_sign_in_token_digest_check CHECK (octet_length(token_digest) = 32)
);

CREATE INDEX pending_sign_in_account_idx ON pending_sign_in (account_id, expires_at);
CREATE INDEX pending_sign_in_age_idx ON pending_sign_in (expires_at);

ALTER TABLE account ADD COLUMN second_factor_at timestamptz;
ALTER TABLE account ADD COLUMN recovery_codes_at timestamptz;
-- A session without the factor does not count once its account has one.
ALTER TABLE session ADD COLUMN second_factor boolean NOT NULL DEFAULT false;
ALTER TABLE session ADD COLUMN confirmed_at timestamptz;
ALTER TABLE tenant ADD COLUMN require_second_factor boolean NOT NULL DEFAULT false;
