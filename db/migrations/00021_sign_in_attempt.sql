-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The table counts attempts, whatever came of them, until one succeeds.
ALTER TABLE login_failure RENAME TO sign_in_attempt;
ALTER TABLE sign_in_attempt RENAME COLUMN failures TO attempts;
ALTER TABLE sign_in_attempt RENAME CONSTRAINT login_failure_pkey TO sign_in_attempt_pkey;
ALTER TABLE sign_in_attempt RENAME CONSTRAINT login_failure_subject_check TO sign_in_attempt_subject_check;
ALTER INDEX login_failure_last_at_idx RENAME TO sign_in_attempt_last_at_idx;
ALTER INDEX login_failure_few_idx RENAME TO sign_in_attempt_few_idx;

-- For processes of the release before. The next release drops it.
CREATE VIEW login_failure AS
SELECT subject, network, attempts AS failures, last_at FROM sign_in_attempt;

-- +goose StatementBegin
DO $$
DECLARE
    held record;
BEGIN
    FOR held IN
        SELECT format('GRANT %s ON login_failure TO %s', a.privilege_type, a.grantee::regrole) AS again
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = 'sign_in_attempt'::regclass AND a.grantee NOT IN (0, c.relowner)
            AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE held.again;
    END LOOP;
END
$$;
-- +goose StatementEnd
