-- Tables that have another name now, under the names of the release before, for its processes that still run. The next
-- release drops these views. sqlc does not read this file, so that no query of ours uses them.
CREATE VIEW tenant_user AS
SELECT tenant_id, user_id, plan, revision, removed_at, created_at, updated_at FROM plan_assignment;

CREATE VIEW login_failure AS
SELECT subject, network, attempts AS failures, last_at FROM sign_in_attempt;

CREATE VIEW alert_delivery AS
SELECT tenant_id, delivery_id, alert_id, subject, denied, since, raised_at, state, attempts, next_attempt_at, attempted_at,
    http_status AS status, error, is_test, lease_ends_at, ctid -- which old deliveries are dropped by
FROM delivery;
