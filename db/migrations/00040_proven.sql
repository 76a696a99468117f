-- +goose Up
SET LOCAL lock_timeout = '2s';

-- An address is unique among accounts that have proven it. The others belong to the tenant that invited them. Existing
-- accounts count as proven.
ALTER TABLE account ADD COLUMN unproven_in bigint;
ALTER TABLE account ADD CONSTRAINT account_unproven_in_fkey FOREIGN KEY (unproven_in) REFERENCES tenant (tenant_id);
ALTER TABLE account ADD CONSTRAINT account_unproven_check CHECK (unproven_in IS NULL OR NOT is_platform_admin);
DROP INDEX account_email_key;
CREATE UNIQUE INDEX account_email_key ON account (lower(email)) WHERE unproven_in IS NULL;
CREATE UNIQUE INDEX account_unproven_email_key ON account (unproven_in, lower(email)) WHERE unproven_in IS NOT NULL;
CREATE INDEX account_list_idx ON account (lower(email), account_id);

-- An account that has not proven its address is a member of the tenant that invited it, and of no other.
-- +goose StatementBegin
CREATE FUNCTION member_may_join() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM account WHERE account_id = NEW.account_id AND unproven_in <> NEW.tenant_id) THEN
        RAISE EXCEPTION 'the account has not proven its address' USING ERRCODE = 'check_violation', CONSTRAINT = 'member_proven_check';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER member_may_join BEFORE INSERT ON member FOR EACH ROW EXECUTE FUNCTION member_may_join();
