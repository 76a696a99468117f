-- +goose Up
SET LOCAL lock_timeout = '2s';

-- state is how far a delivery is; http_status is what its receiver answered. The table has another name too, so that a
-- view can have the names of before.
ALTER TABLE alert_delivery RENAME TO delivery;
ALTER TABLE delivery RENAME COLUMN status TO http_status;
ALTER TABLE delivery RENAME CONSTRAINT alert_delivery_pkey TO delivery_pkey;
ALTER TABLE delivery RENAME CONSTRAINT alert_delivery_alert_fkey TO delivery_alert_fkey;
ALTER TABLE delivery RENAME CONSTRAINT alert_delivery_state_check TO delivery_state_check;
ALTER INDEX alert_delivery_alert_idx RENAME TO delivery_alert_idx;
ALTER INDEX alert_delivery_pending_idx RENAME TO delivery_pending_idx;
ALTER INDEX alert_delivery_due_idx RENAME TO delivery_due_idx;
ALTER SEQUENCE alert_delivery_delivery_id_seq RENAME TO delivery_delivery_id_seq;

-- For processes of the release before. The next release drops it.
CREATE VIEW alert_delivery AS
SELECT tenant_id, delivery_id, alert_id, subject, denied, since, raised_at, state, attempts, next_attempt_at, attempted_at,
    http_status AS status, error, is_test, lease_ends_at, ctid -- which old deliveries are dropped by
FROM delivery;

-- +goose StatementBegin
DO $$
DECLARE
    held record;
BEGIN
    FOR held IN
        SELECT format('GRANT %s ON alert_delivery TO %s', a.privilege_type, a.grantee::regrole) AS again
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = 'delivery'::regclass AND a.grantee NOT IN (0, c.relowner)
            AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE held.again;
    END LOOP;
END
$$;
-- +goose StatementEnd
