-- +goose Up
SET LOCAL lock_timeout = '2s';

-- How many processes began a replay and did not end it.
ALTER TABLE replay ADD COLUMN attempts integer NOT NULL DEFAULT 0;

-- audit_replay logs that a replay was asked for, and that it was canceled. The log has no request and no result, because
-- these can name users, and are erased with the replay.
-- +goose StatementBegin
CREATE FUNCTION audit_replay() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    image jsonb := jsonb_build_object('replay_id', NEW.replay_id, 'kind', NEW.request->'kind',
        'since', NEW.request->'since', 'until', NEW.request->'until', 'is_canceled', NEW.is_canceled);
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM write_audit(NEW.tenant_id, 'create', 'replay', NEW.replay_id::text, NULL, image);
    ELSIF NEW.is_canceled AND NOT OLD.is_canceled THEN
        PERFORM write_audit(NEW.tenant_id, 'update', 'replay', NEW.replay_id::text, image || '{"is_canceled": false}', image);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER replay_audit AFTER INSERT OR UPDATE OF is_canceled ON replay
    FOR EACH ROW EXECUTE FUNCTION audit_replay();
