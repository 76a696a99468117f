-- +goose Up
SET LOCAL lock_timeout = '2s';

-- The counts of violations are partitioned by day; see 00055_violation_minute_bound.sql. The release before reads and writes
-- all of them by the same name. Roles that had rights on the table have the same rights on the new one, and none on partitions.
-- +goose StatementBegin
DO $$
DECLARE
    former oid := 'violation_minute'::regclass;
    has_rows boolean;
    is_secured boolean;
    bound text; -- the constraint that holds for all rows
    end_day date; -- the first day that is not in the oldest partition
    again text[]; -- the table's grants and policies
    one text;
BEGIN
    -- This reads the whole table, while others read and write it. Attaching it reads nothing then.
    SELECT conname INTO bound FROM pg_constraint WHERE conrelid = former AND conname ~ '^violation_minute_until_[0-9]{8}$';
    IF bound IS NOT NULL THEN
        EXECUTE format('ALTER TABLE violation_minute VALIDATE CONSTRAINT %I', bound);
        end_day := to_date(right(bound, 8), 'YYYYMMDD');
    END IF;
    LOCK TABLE violation_minute IN ACCESS EXCLUSIVE MODE;
    has_rows := bound IS NOT NULL OR EXISTS (SELECT FROM violation_minute);
    end_day := coalesce(end_day, (now() AT TIME ZONE 'UTC')::date + 14);
    SELECT relrowsecurity INTO is_secured FROM pg_class WHERE oid = former;
    SELECT array_agg(statement) INTO again FROM (
        SELECT format('GRANT %s ON violation_minute TO %s', a.privilege_type, a.grantee::regrole) AS statement
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = former AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        UNION ALL
        SELECT format('CREATE POLICY %I ON violation_minute AS %s TO %s USING (%s)', p.policyname, p.permissive,
            (SELECT string_agg(quote_ident(r), ', ') FROM unnest(p.roles) AS r), p.qual)
        FROM pg_policies AS p WHERE p.schemaname = 'public' AND p.tablename = 'violation_minute'
    ) AS s;
    IF has_rows THEN
        one := 'violation_minute_' || to_char(end_day - 1, 'YYYYMMDD');
        EXECUTE format('ALTER TABLE violation_minute RENAME TO %I', one);
        EXECUTE format('ALTER INDEX violation_minute_pkey RENAME TO %I', one || '_pkey');
        EXECUTE format('ALTER INDEX violation_minute_rule_idx RENAME TO %I', one || '_rule_idx');
    ELSE
        DROP TABLE violation_minute;
    END IF;

    CREATE TABLE violation_minute (
        tenant_id      bigint      NOT NULL,
        minute         timestamptz NOT NULL,
        rule_id        bigint      NOT NULL,
        subject        text        NOT NULL COLLATE "C",
        other          boolean     NOT NULL, -- all subjects for which a process had no room; subject is ''
        denied         bigint      NOT NULL,
        detail_dropped bigint      NOT NULL,
        CONSTRAINT violation_minute_pkey PRIMARY KEY (tenant_id, minute, rule_id, subject, other)
    ) PARTITION BY RANGE (minute);
    CREATE INDEX violation_minute_rule_idx ON violation_minute (tenant_id, rule_id, minute);
    IF has_rows THEN
        EXECUTE format('ALTER TABLE violation_minute ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)',
            one, end_day::timestamp AT TIME ZONE 'UTC');
        IF bound IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', one, bound);
        END IF;
        EXECUTE (SELECT coalesce(string_agg(format('REVOKE ALL ON %s FROM %s', former::regclass, grantee), '; '), 'SELECT 1') FROM (
            SELECT DISTINCT a.grantee::regrole AS grantee FROM pg_class AS c, aclexplode(c.relacl) AS a
            WHERE c.oid = former AND a.grantee NOT IN (0, c.relowner)) AS g);
    END IF;
    CREATE TABLE violation_minute_default PARTITION OF violation_minute DEFAULT;
    FOREACH one IN ARRAY coalesce(again, '{}') LOOP
        EXECUTE one;
    END LOOP;
    IF is_secured THEN
        ALTER TABLE violation_minute ENABLE ROW LEVEL SECURITY;
    END IF;
END
$$;
-- +goose StatementEnd

-- make_violation_minute_partition makes the partition of a day (in UTC) unless its rows have one, and moves them into it from
-- the default one. The oldest partition of a database that had counts before they were partitioned holds many days.
-- +goose StatementBegin
CREATE FUNCTION make_violation_minute_partition(day date) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text := 'violation_minute_' || to_char(day, 'YYYYMMDD');
    first_at timestamptz := day::timestamp AT TIME ZONE 'UTC';
    end_at timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF day NOT BETWEEN current_date - 800 AND current_date + 60 THEN
        RAISE EXCEPTION 'no partition is made for %', day;
    END IF;
    IF to_regclass('public.' || partition) IS NOT NULL OR EXISTS (
        SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'public.violation_minute'::regclass AND pg_get_expr(relpartbound, pg_class.oid) LIKE '%(MINVALUE)%'
            AND to_date(right(relname, 8), 'YYYYMMDD') >= day
    ) THEN
        RETURN false;
    END IF;
    -- Nothing may come into the default partition between the move and the moment when the new one takes its place.
    LOCK TABLE public.violation_minute_default IN ACCESS EXCLUSIVE MODE;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.violation_minute INCLUDING DEFAULTS)', partition);
    EXECUTE format('WITH moved AS (
            DELETE FROM public.violation_minute_default WHERE minute >= %L AND minute < %L RETURNING *)
        INSERT INTO public.%I SELECT * FROM moved', first_at, end_at, partition);
    EXECUTE format('ALTER TABLE public.violation_minute ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        partition, first_at, end_at);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- drop_violation_minute_partitions drops the partitions of the days before a day (in UTC), and those days' rows of the default
-- one. It always keeps yesterday's.
-- +goose StatementBegin
CREATE FUNCTION drop_violation_minute_partitions(before date) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text;
    dropped integer := 0;
BEGIN
    IF before > (now() AT TIME ZONE 'UTC')::date - 1 THEN
        RAISE EXCEPTION 'counts of violations are kept for a day at least, so not dropped before %', before;
    END IF;
    FOR partition IN
        SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'public.violation_minute'::regclass
            AND relname ~ '^violation_minute_[0-9]{8}$' AND to_date(right(relname, 8), 'YYYYMMDD') < before
        ORDER BY relname
    LOOP
        EXECUTE format('DROP TABLE public.%I', partition);
        dropped := dropped + 1;
    END LOOP;
    DELETE FROM public.violation_minute_default WHERE minute < before::timestamp AT TIME ZONE 'UTC';
    RETURN dropped;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION make_violation_minute_partition(date) FROM PUBLIC;
REVOKE ALL ON FUNCTION drop_violation_minute_partitions(date) FROM PUBLIC;
