-- +goose Up

-- An address is compared without the case of its ASCII letters: that is what lower() folds under "C".
CREATE TABLE account (
    account_id        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    email             text        NOT NULL COLLATE "C", -- as typed; it never changes
    name              text        NOT NULL DEFAULT '',
    password_hash     text        NOT NULL, -- argon2id, in the PHC string format
    is_platform_admin boolean     NOT NULL DEFAULT false,
    disabled_at       timestamptz,
    version           bigint      NOT NULL DEFAULT 1, -- not raised by a password
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT account_pkey PRIMARY KEY (account_id),
    CONSTRAINT account_email_check CHECK (octet_length(email) BETWEEN 3 AND 254),
    CONSTRAINT account_name_check CHECK (char_length(name) <= 100)
);

CREATE UNIQUE INDEX account_email_key ON account (lower(email));

-- A row is a live session or one that ended by its age; what ended otherwise is deleted.
CREATE TABLE session (
    session_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    account_id   bigint      NOT NULL,
    token_digest bytea       NOT NULL,
    user_agent   text        NOT NULL DEFAULT '',
    ip           inet,
    created_at   timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(), -- to the minute
    CONSTRAINT session_pkey PRIMARY KEY (session_id),
    CONSTRAINT session_token_digest_key UNIQUE (token_digest),
    CONSTRAINT session_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT session_token_digest_check CHECK (octet_length(token_digest) = 32),
    CONSTRAINT session_user_agent_check CHECK (char_length(user_agent) <= 256)
);

CREATE INDEX session_account_idx ON session (account_id, session_id);

-- Attempts to sign in since the last success. The subject is a digest of an address, known or not, of a device
-- or of a session: what people type there by mistake is nobody's business.
CREATE TABLE login_failure (
    subject  bytea       NOT NULL,
    network  cidr        NOT NULL, -- that they come from; 0.0.0.0/0 counts those from anywhere
    failures integer     NOT NULL,
    last_at  timestamptz NOT NULL,
    CONSTRAINT login_failure_pkey PRIMARY KEY (subject, network),
    CONSTRAINT login_failure_subject_check CHECK (octet_length(subject) = 32)
);

CREATE INDEX login_failure_last_at_idx ON login_failure (last_at);
-- Those that make nobody wait yet, which a flood of made-up addresses leaves.
CREATE INDEX login_failure_few_idx ON login_failure (last_at) WHERE failures < 5;

CREATE TABLE member (
    tenant_id  bigint      NOT NULL,
    account_id bigint      NOT NULL,
    role       text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT member_pkey PRIMARY KEY (tenant_id, account_id),
    CONSTRAINT member_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT member_account_fkey FOREIGN KEY (account_id) REFERENCES account (account_id),
    CONSTRAINT member_role_check CHECK (role IN ('viewer', 'editor', 'owner'))
);

CREATE INDEX member_account_idx ON member (account_id, tenant_id);

-- Whoever opens the link knows no tenant, so a token's digest is unique among all of them. It is of 256
-- random bits: that one is taken tells nothing.
CREATE TABLE invitation (
    tenant_id     bigint      NOT NULL,
    invitation_id bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    email         text        NOT NULL COLLATE "C",
    role          text        NOT NULL,
    token_digest  bytea       NOT NULL,
    invited_by    text        NOT NULL, -- the inviter's address, or who else it was
    invited_by_account bigint, -- null: it was no account
    expires_at    timestamptz NOT NULL,
    accepted_at   timestamptz,
    accepted_by   bigint, -- an account
    revoked_at    timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT invitation_pkey PRIMARY KEY (tenant_id, invitation_id),
    CONSTRAINT invitation_token_digest_key UNIQUE (token_digest),
    CONSTRAINT invitation_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT invitation_invited_by_account_fkey FOREIGN KEY (invited_by_account) REFERENCES account (account_id),
    CONSTRAINT invitation_accepted_by_fkey FOREIGN KEY (accepted_by) REFERENCES account (account_id),
    CONSTRAINT invitation_email_check CHECK (octet_length(email) BETWEEN 3 AND 254),
    CONSTRAINT invitation_role_check CHECK (role IN ('viewer', 'editor', 'owner')),
    CONSTRAINT invitation_token_digest_check CHECK (octet_length(token_digest) = 32),
    CONSTRAINT invitation_once_check CHECK (accepted_at IS NULL OR revoked_at IS NULL),
    CONSTRAINT invitation_accepted_by_check CHECK ((accepted_at IS NULL) = (accepted_by IS NULL))
);

-- The open ones, to list them; by address, since a new invitation revokes the one before it; and by account,
-- since one who may invite no longer must not come back by an invitation of his own.
CREATE INDEX invitation_open_idx ON invitation (tenant_id, invitation_id) WHERE accepted_at IS NULL AND revoked_at IS NULL;
CREATE INDEX invitation_email_idx ON invitation (tenant_id, lower(email)) WHERE accepted_at IS NULL AND revoked_at IS NULL;
CREATE INDEX invitation_account_idx ON invitation (invited_by_account, tenant_id) WHERE accepted_at IS NULL AND revoked_at IS NULL;
