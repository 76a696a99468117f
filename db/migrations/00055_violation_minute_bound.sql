-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The counts of violations become partitioned by day, without rewriting them and without reading them under a lock: their
-- table becomes the oldest partition, for all days of the next two weeks and before. This constraint keeps later rows out of
-- it. The next migration checks the rows that it has, and makes it a partition.
-- +goose StatementBegin
DO $$
DECLARE
    end_day date := (now() AT TIME ZONE 'UTC')::date + 14;
BEGIN
    IF EXISTS (SELECT FROM violation_minute) THEN
        EXECUTE format('ALTER TABLE violation_minute ADD CONSTRAINT violation_minute_until_%s CHECK (minute < %L) NOT VALID',
            to_char(end_day, 'YYYYMMDD'), end_day::timestamp AT TIME ZONE 'UTC');
    END IF;
END
$$;
-- +goose StatementEnd
