-- +goose Up
SET LOCAL lock_timeout = '2s';

-- A row assigns a plan to a user, so the table is called that.
ALTER TABLE tenant_user RENAME TO plan_assignment;
ALTER TABLE plan_assignment RENAME CONSTRAINT tenant_user_pkey TO plan_assignment_pkey;
ALTER TABLE plan_assignment RENAME CONSTRAINT tenant_user_tenant_fkey TO plan_assignment_tenant_fkey;
ALTER TABLE plan_assignment RENAME CONSTRAINT tenant_user_plan_fkey TO plan_assignment_plan_fkey;
ALTER TABLE plan_assignment RENAME CONSTRAINT tenant_user_user_id_check TO plan_assignment_user_id_check;
ALTER INDEX tenant_user_revision_idx RENAME TO plan_assignment_revision_idx;
ALTER INDEX tenant_user_list_idx RENAME TO plan_assignment_list_idx;
ALTER INDEX tenant_user_plan_idx RENAME TO plan_assignment_plan_idx;
ALTER TRIGGER tenant_user_audit_insert ON plan_assignment RENAME TO plan_assignment_audit_insert;
ALTER TRIGGER tenant_user_audit_update ON plan_assignment RENAME TO plan_assignment_audit_update;
ALTER TRIGGER tenant_user_audit_delete ON plan_assignment RENAME TO plan_assignment_audit_delete;
ALTER TRIGGER tenant_user_inserted ON plan_assignment RENAME TO plan_assignment_inserted;
ALTER TRIGGER tenant_user_updated ON plan_assignment RENAME TO plan_assignment_updated;
ALTER TRIGGER tenant_user_deleted ON plan_assignment RENAME TO plan_assignment_deleted;

-- For processes of the release before. The next release drops it.
CREATE VIEW tenant_user AS
SELECT tenant_id, user_id, plan, revision, removed_at, created_at, updated_at FROM plan_assignment;

-- +goose StatementBegin
DO $$
DECLARE
    held record;
BEGIN
    FOR held IN
        SELECT format('GRANT %s ON tenant_user TO %s', a.privilege_type, a.grantee::regrole) AS again
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = 'plan_assignment'::regclass AND a.grantee NOT IN (0, c.relowner)
            AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE held.again;
    END LOOP;
END
$$;
-- +goose StatementEnd
