-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The algorithms that a process knows. Processes of the release before do not say, and know one.
ALTER TABLE api_process ADD COLUMN algorithms text[] NOT NULL DEFAULT '{token_bucket}';

-- A violation shows the limit as it was then: a rate and a burst say too little of a window or of places.
ALTER TABLE rate_limit_violation
    ADD COLUMN algorithm text NOT NULL DEFAULT 'token_bucket',
    ADD COLUMN limit_text text NOT NULL DEFAULT '';
