-- +goose Up
SET LOCAL lock_timeout = '2s';

-- How many days of checks are recorded for replays; 0 for none.
ALTER TABLE tenant ADD COLUMN record_days smallint NOT NULL DEFAULT 0;
ALTER TABLE tenant ADD CONSTRAINT tenant_record_days_check CHECK (record_days BETWEEN 0 AND 30);

-- Recorded checks, packed: see the package traffic. Without foreign keys, like violations.
CREATE TABLE traffic_block (
    tenant_id bigint      NOT NULL,
    day       date        NOT NULL, -- of all its checks, in UTC
    writer    text        NOT NULL COLLATE "C",
    number    bigint      NOT NULL, -- of the writer's blocks
    first_at  timestamptz NOT NULL,
    last_at   timestamptz NOT NULL,
    stratum   smallint    NOT NULL,
    level     smallint    NOT NULL,
    checks    integer     NOT NULL,
    seen      bigint      NOT NULL, -- checks since the tenant's previous block of the writer
    left_out  bigint      NOT NULL, -- of these, never recorded
    dropped   bigint      NOT NULL, -- of these, without room
    users     text[]      NOT NULL, -- so that the blocks of a user are found
    payload   bytea       NOT NULL, -- compressed
    CONSTRAINT traffic_block_pkey PRIMARY KEY (tenant_id, day, writer, number)
) PARTITION BY RANGE (day);

ALTER TABLE traffic_block ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE traffic_block_default PARTITION OF traffic_block DEFAULT;

CREATE INDEX traffic_block_at_idx ON traffic_block (tenant_id, day, first_at, writer, number);

-- What the blocks of a day add up to.
CREATE TABLE traffic_day (
    tenant_id bigint      NOT NULL,
    day       date        NOT NULL,
    blocks    bigint      NOT NULL,
    bytes     bigint      NOT NULL,
    checks    bigint      NOT NULL,
    seen      bigint      NOT NULL,
    left_out  bigint      NOT NULL,
    dropped   bigint      NOT NULL,
    level     smallint    NOT NULL, -- of the latest block
    first_at  timestamptz NOT NULL,
    last_at   timestamptz NOT NULL,
    CONSTRAINT traffic_day_pkey PRIMARY KEY (tenant_id, day)
);

CREATE INDEX traffic_day_day_idx ON traffic_day (day);

-- make_traffic_partition makes the partition of a day unless it exists, and moves the day's rows into it from the default
-- one.
-- +goose StatementBegin
CREATE FUNCTION make_traffic_partition(day date) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text := 'traffic_block_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF day NOT BETWEEN current_date - 60 AND current_date + 60 THEN
        RAISE EXCEPTION 'no partition is made for %', day;
    END IF;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Nothing may come into the default partition between the move and the moment when the new one takes its place.
    LOCK TABLE public.traffic_block_default IN ACCESS EXCLUSIVE MODE;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.traffic_block INCLUDING DEFAULTS INCLUDING STORAGE)', partition);
    EXECUTE format('WITH moved AS (DELETE FROM public.traffic_block_default AS b WHERE b.day = %L RETURNING *)
        INSERT INTO public.%I SELECT * FROM moved', day, partition);
    EXECUTE format('ALTER TABLE public.traffic_block ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        partition, day, day + 1);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- drop_traffic_partitions drops the partitions of the days before a day, and those days' rows of the default one. It always
-- keeps yesterday's.
-- +goose StatementBegin
CREATE FUNCTION drop_traffic_partitions(before date) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text;
    dropped integer := 0;
BEGIN
    IF before > (now() AT TIME ZONE 'UTC')::date - 1 THEN
        RAISE EXCEPTION 'recorded checks are kept for a day at least, so not dropped before %', before;
    END IF;
    FOR partition IN
        SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'public.traffic_block'::regclass
            AND relname ~ '^traffic_block_[0-9]{8}$' AND to_date(right(relname, 8), 'YYYYMMDD') < before
        ORDER BY relname
    LOOP
        EXECUTE format('DROP TABLE public.%I', partition);
        dropped := dropped + 1;
    END LOOP;
    DELETE FROM public.traffic_block_default AS b WHERE b.day < before;
    RETURN dropped;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION make_traffic_partition(date) FROM PUBLIC;
REVOKE ALL ON FUNCTION drop_traffic_partitions(date) FROM PUBLIC;

-- Replays of recorded checks, which wait here until a process runs them.
CREATE TABLE replay (
    tenant_id         bigint           NOT NULL,
    replay_id         bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    requested_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    requested_by_kind text             NOT NULL,
    requested_by_id   text             NOT NULL COLLATE "C",
    requested_by_name text             NOT NULL,
    request           jsonb            NOT NULL, -- see the package replay
    state             text             NOT NULL DEFAULT 'waiting',
    progress          double precision NOT NULL DEFAULT 0, -- 0 to 1
    is_canceled       boolean          NOT NULL DEFAULT false, -- somebody asked for it
    holder            text             NOT NULL DEFAULT '' COLLATE "C", -- the process that runs it
    lease_ends_at     timestamptz,
    started_at        timestamptz,
    finished_at       timestamptz,
    failure           text             NOT NULL DEFAULT '',
    result            jsonb,
    CONSTRAINT replay_pkey PRIMARY KEY (tenant_id, replay_id),
    CONSTRAINT replay_state_check CHECK (state IN ('waiting', 'running', 'done', 'failed', 'canceled'))
);

CREATE INDEX replay_open_idx ON replay (requested_at) WHERE state IN ('waiting', 'running');
CREATE INDEX replay_requested_idx ON replay (requested_at);
