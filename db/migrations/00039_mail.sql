-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Mail to people and the state of sending it.
CREATE TABLE mail (
    tenant_id       bigint      NOT NULL, -- in whose share it is sent; 0 for the platform's own
    mail_id         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    kind            text        NOT NULL,
    recipient       text        NOT NULL,
    account_id      bigint      NOT NULL DEFAULT 0, -- 0: none is known
    invitation_id   bigint,
    facts           jsonb       NOT NULL DEFAULT '{}', -- what a notice says
    created_at      timestamptz NOT NULL DEFAULT now(),
    give_up_at      timestamptz NOT NULL, -- it is not sent later
    state           text        NOT NULL DEFAULT 'queued',
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(), -- while queued; during an attempt it is when another process may take over
    lease_ends_at   timestamptz, -- while it is attempted
    attempted_at    timestamptz,
    error           text        NOT NULL DEFAULT '',
    CONSTRAINT mail_pkey PRIMARY KEY (tenant_id, mail_id),
    CONSTRAINT mail_mail_id_key UNIQUE (mail_id),
    CONSTRAINT mail_invitation_fkey FOREIGN KEY (tenant_id, invitation_id) REFERENCES invitation (tenant_id, invitation_id),
    CONSTRAINT mail_state_check CHECK (state IN ('queued', 'sent', 'failed'))
);

CREATE INDEX mail_due_idx ON mail (tenant_id, next_attempt_at) WHERE state = 'queued';
CREATE INDEX mail_created_idx ON mail (tenant_id, created_at);
CREATE INDEX mail_age_idx ON mail (created_at);
CREATE INDEX mail_account_idx ON mail (account_id, created_at) WHERE account_id <> 0;
CREATE INDEX mail_invitation_idx ON mail (tenant_id, invitation_id) WHERE invitation_id IS NOT NULL;

ALTER TABLE invitation ADD COLUMN by_mail boolean NOT NULL DEFAULT false;

-- The token of a mailed invitation is made again for each attempt to send it, which is no change to log.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION audit_images(old_row jsonb, new_row jsonb)
    RETURNS TABLE (action text, before jsonb, after jsonb) LANGUAGE sql IMMUTABLE AS $$
    SELECT
        CASE WHEN i.before IS NULL THEN 'create' WHEN i.after IS NULL THEN 'remove' ELSE 'update' END,
        i.before - '{tenant_id,removed_at,revoked_at,digest,token_digest,password_hash,secret}'::text[],
        i.after - '{tenant_id,removed_at,revoked_at,digest,token_digest,password_hash,secret}'::text[]
    FROM (
        SELECT
            CASE WHEN coalesce(old_row->>'removed_at', old_row->>'revoked_at') IS NULL THEN old_row END AS before,
            CASE WHEN coalesce(new_row->>'removed_at', new_row->>'revoked_at') IS NULL THEN new_row END AS after
        OFFSET 0
    ) AS i
    WHERE coalesce(i.before, i.after) IS NOT NULL
        AND old_row - '{revision,version,updated_at,last_used_at,last_seen_at,token_digest}'::text[]
            IS DISTINCT FROM new_row - '{revision,version,updated_at,last_used_at,last_seen_at,token_digest}'::text[]
$$;
-- +goose StatementEnd
