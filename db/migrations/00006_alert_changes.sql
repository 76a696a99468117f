-- +goose Up

-- Changes of alerts are written to the audit log, and people can ask for a delivery to see whether it arrives.
ALTER TABLE alert_delivery ADD COLUMN is_test boolean NOT NULL DEFAULT false;

CREATE TRIGGER alert_audit AFTER INSERT OR UPDATE OR DELETE ON alert
    FOR EACH ROW EXECUTE FUNCTION audit_change('alert', 'alert_id');
