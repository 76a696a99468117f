-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Who people are at OpenID Connect providers. An identity is its issuer and subject; the address is only shown.
CREATE TABLE account_identity (
    identity_id  bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    issuer       text        NOT NULL COLLATE "C",
    subject      text        NOT NULL COLLATE "C",
    account_id   bigint      NOT NULL,
    email        text        NOT NULL DEFAULT '' COLLATE "C", -- as the provider told it last
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz, -- to the minute; null: never to sign in
    CONSTRAINT account_identity_pkey PRIMARY KEY (identity_id),
    CONSTRAINT account_identity_issuer_subject_key UNIQUE (issuer, subject),
    CONSTRAINT account_identity_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT account_identity_issuer_check CHECK (octet_length(issuer) BETWEEN 1 AND 2048),
    CONSTRAINT account_identity_subject_check CHECK (octet_length(subject) BETWEEN 1 AND 1020),
    CONSTRAINT account_identity_email_check CHECK (octet_length(email) <= 254)
);

CREATE INDEX account_identity_account_idx ON account_identity (account_id);

CREATE TRIGGER account_identity_platform_audit AFTER INSERT OR UPDATE OR DELETE ON account_identity
    FOR EACH ROW EXECUTE FUNCTION audit_platform_change('identity', 'identity_id');

-- Sign-ins at providers that were used, so that none is used twice. They are forgotten when their cookies have expired.
CREATE TABLE used_sign_in (
    flow_digest bytea       NOT NULL,
    expires_at  timestamptz NOT NULL,
    CONSTRAINT used_sign_in_pkey PRIMARY KEY (flow_digest),
    CONSTRAINT used_sign_in_flow_digest_check CHECK (octet_length(flow_digest) = 32)
);

CREATE INDEX used_sign_in_expires_idx ON used_sign_in (expires_at);

-- The issuer whose groups gave a role; '' for a person.
ALTER TABLE member ADD COLUMN granted_by text NOT NULL DEFAULT '' COLLATE "C";
ALTER TABLE account ADD COLUMN admin_by text NOT NULL DEFAULT '' COLLATE "C";

-- The slug of the provider that a session began at; '' for a password.
ALTER TABLE session ADD COLUMN provider text NOT NULL DEFAULT '' COLLATE "C";
