-- +goose NO TRANSACTION
-- +goose Up
-- Deliveries are claimed tenant by tenant. The release before claims by alert_delivery_pending_idx, which can go
-- when that release is gone.
DROP INDEX CONCURRENTLY IF EXISTS alert_delivery_due_idx;
CREATE INDEX CONCURRENTLY alert_delivery_due_idx ON alert_delivery (tenant_id, next_attempt_at) WHERE state = 'pending';
