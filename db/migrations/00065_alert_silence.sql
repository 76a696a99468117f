-- +goose Up
SET LOCAL lock_timeout = '2s';

-- Until when an alert sends nothing, who said so, and why.
ALTER TABLE alert
    ADD COLUMN silenced_until timestamptz,
    ADD COLUMN silenced_by    text NOT NULL DEFAULT '',
    ADD COLUMN silence_reason text NOT NULL DEFAULT '';
ALTER TABLE alert ADD CONSTRAINT alert_silence_check CHECK (char_length(silence_reason) <= 500);

-- A delivery that was recorded and not sent, because its alert was silenced. Its state is delivered: nothing more happens to it.
ALTER TABLE delivery ADD COLUMN silenced boolean NOT NULL DEFAULT false;
