-- +goose Up

-- What was denied, and what shadow rules would have denied: see the package violations. Without foreign keys,
-- and with what the rule was then, because rules change and rows stay. Rows of a day that has no
-- partition yet are in the default one, and move when it is made.
CREATE TABLE rate_limit_violation (
    tenant_id       bigint           NOT NULL,
    violation_id    bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    requested_at    timestamptz      NOT NULL,
    last_at         timestamptz      NOT NULL,
    recorded_at     timestamptz      NOT NULL DEFAULT now(), -- when it arrived here
    count           bigint           NOT NULL,
    rule_id         bigint           NOT NULL,
    bucket_key      text             NOT NULL, -- the rule's id, a colon, the subject
    scope           text             NOT NULL,
    mode            text             NOT NULL,
    reason          text             NOT NULL,
    key_pattern     text             NOT NULL,
    rule_version    bigint           NOT NULL,
    rate_per_second double precision NOT NULL,
    burst_capacity  bigint           NOT NULL,
    user_id         text             COLLATE "C", -- null, like the next three, for a check without
    ip_address      inet,
    endpoint        text             COLLATE "C",
    method          text             COLLATE "C",
    plan            text             COLLATE "C",
    cost            double precision NOT NULL, -- in tokens, like the next; null for a bucket that was not read
    tokens_at_time  double precision,
    retry_after_ms  bigint, -- null if waiting would not have helped
    CONSTRAINT rate_limit_violation_pkey PRIMARY KEY (tenant_id, requested_at, violation_id)
) PARTITION BY RANGE (requested_at);

CREATE TABLE rate_limit_violation_default PARTITION OF rate_limit_violation DEFAULT;

CREATE INDEX rate_limit_violation_rule_idx ON rate_limit_violation (tenant_id, rule_id, requested_at, violation_id);
CREATE INDEX rate_limit_violation_user_idx ON rate_limit_violation (tenant_id, user_id, requested_at, violation_id)
    WHERE user_id IS NOT NULL;
CREATE INDEX rate_limit_violation_ip_idx ON rate_limit_violation (tenant_id, ip_address, requested_at, violation_id)
    WHERE ip_address IS NOT NULL;
CREATE INDEX rate_limit_violation_endpoint_idx ON rate_limit_violation (tenant_id, endpoint, requested_at, violation_id)
    WHERE endpoint IS NOT NULL;
CREATE INDEX rate_limit_violation_recorded_idx ON rate_limit_violation (tenant_id, recorded_at);

-- How often each subject was denied. Of a tenant, rule and time, denied is the sum of the violations'
-- counts and of detail_dropped. Subjects longer than 1024 bytes end in their digest.
CREATE TABLE violation_minute (
    tenant_id      bigint      NOT NULL,
    minute         timestamptz NOT NULL,
    rule_id        bigint      NOT NULL,
    subject        text        NOT NULL COLLATE "C",
    other          boolean     NOT NULL, -- all subjects for which a process had no room; subject is ''
    denied         bigint      NOT NULL,
    detail_dropped bigint      NOT NULL,
    CONSTRAINT violation_minute_pkey PRIMARY KEY (tenant_id, minute, rule_id, subject, other)
);

-- How checks were decided. Rule 0 is for checks as a whole; other rows are that rule's own verdicts.
-- Degraded ones are among the three before.
CREATE TABLE decision_minute (
    tenant_id  bigint      NOT NULL,
    rule_id    bigint      NOT NULL,
    minute     timestamptz NOT NULL,
    allowed    bigint      NOT NULL,
    denied     bigint      NOT NULL,
    bypassed   bigint      NOT NULL,
    degraded   bigint      NOT NULL,
    cost_taken numeric     NOT NULL, -- in tokens
    CONSTRAINT decision_minute_pkey PRIMARY KEY (tenant_id, rule_id, minute)
);

CREATE INDEX decision_minute_minute_idx ON decision_minute (tenant_id, minute);

-- The sums of decision_minute over spans of 1, 6 and 24 hours, written with it, so that a chart of any
-- length reads a few rows for each of its points.
CREATE TABLE decision_span (
    tenant_id    bigint      NOT NULL,
    rule_id      bigint      NOT NULL,
    span_minutes integer     NOT NULL,
    starts_at    timestamptz NOT NULL, -- a multiple of the span since the Unix epoch
    allowed      bigint      NOT NULL,
    denied       bigint      NOT NULL,
    bypassed     bigint      NOT NULL,
    degraded     bigint      NOT NULL,
    cost_taken   numeric     NOT NULL,
    CONSTRAINT decision_span_pkey PRIMARY KEY (tenant_id, rule_id, span_minutes, starts_at)
);

CREATE INDEX decision_span_starts_idx ON decision_span (tenant_id, span_minutes, starts_at);

-- The batches that recorders have written, so that a retry is not written again.
CREATE TABLE recorder_batch (
    writer_id  text        NOT NULL COLLATE "C",
    batch_seq  bigint      NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT recorder_batch_pkey PRIMARY KEY (writer_id, batch_seq)
);

CREATE INDEX recorder_batch_written_idx ON recorder_batch (written_at);

-- Who is to be told when a rule, or one of its subjects, is denied so often within so many minutes.
CREATE TABLE alert (
    tenant_id      bigint      NOT NULL,
    alert_id       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    name           text        NOT NULL,
    rule_id        bigint      NOT NULL,
    per_subject    boolean     NOT NULL, -- the threshold is that of any one subject, not of all together
    threshold      bigint      NOT NULL,
    window_minutes integer     NOT NULL,
    url            text        NOT NULL,
    secret         text        NOT NULL, -- as it is: every delivery is signed with it
    is_active      boolean     NOT NULL,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT alert_pkey PRIMARY KEY (tenant_id, alert_id),
    CONSTRAINT alert_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT alert_rule_fkey FOREIGN KEY (tenant_id, rule_id) REFERENCES rate_limit_rule (tenant_id, rule_id),
    CONSTRAINT alert_name_check CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT alert_threshold_check CHECK (threshold >= 1),
    CONSTRAINT alert_window_minutes_check CHECK (window_minutes BETWEEN 1 AND 60),
    CONSTRAINT alert_url_check CHECK (octet_length(url) <= 2048)
);

-- What an alert had to say, and how telling it went. It goes with its alert.
CREATE TABLE alert_delivery (
    tenant_id       bigint      NOT NULL,
    delivery_id     bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    alert_id        bigint      NOT NULL,
    subject         text        NOT NULL COLLATE "C", -- '' for all of the rule's together
    denied          bigint      NOT NULL,
    since           timestamptz NOT NULL,
    raised_at       timestamptz NOT NULL,
    state           text        NOT NULL DEFAULT 'pending',
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL, -- while pending; during an attempt it is when another process may take over
    attempted_at    timestamptz,
    status          integer, -- HTTP status of the latest answer; null for none
    error           text        NOT NULL DEFAULT '',
    CONSTRAINT alert_delivery_pkey PRIMARY KEY (tenant_id, delivery_id),
    CONSTRAINT alert_delivery_alert_fkey FOREIGN KEY (tenant_id, alert_id) REFERENCES alert (tenant_id, alert_id) ON DELETE CASCADE,
    CONSTRAINT alert_delivery_state_check CHECK (state IN ('pending', 'delivered', 'failed'))
);

CREATE INDEX alert_delivery_alert_idx ON alert_delivery (tenant_id, alert_id, raised_at);
CREATE INDEX alert_delivery_pending_idx ON alert_delivery (next_attempt_at) WHERE state = 'pending';

-- The functions that make and drop partitions run with the rights of whoever migrated, so that the role
-- of a process needs none to change the schema. They give up after two seconds rather than make
-- everybody wait behind them who waits for a long reader.

-- make_violation_partition makes the partition of a day (in UTC) unless it is there, and moves the day's
-- rows into it from the default one.
-- +goose StatementBegin
CREATE FUNCTION make_violation_partition(day date) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text := 'rate_limit_violation_' || to_char(day, 'YYYYMMDD');
    first_at timestamptz := day::timestamp AT TIME ZONE 'UTC';
    end_at timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF day NOT BETWEEN current_date - 400 AND current_date + 60 THEN
        RAISE EXCEPTION 'no partition is made for %', day;
    END IF;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Nothing may come into the default partition between the move and the moment when the new one takes its place.
    LOCK TABLE public.rate_limit_violation_default IN ACCESS EXCLUSIVE MODE;
    IF to_regclass('public.' || partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.rate_limit_violation INCLUDING DEFAULTS)', partition);
    EXECUTE format('WITH moved AS (
            DELETE FROM public.rate_limit_violation_default WHERE requested_at >= %L AND requested_at < %L RETURNING *)
        INSERT INTO public.%I SELECT * FROM moved', first_at, end_at, partition);
    EXECUTE format('ALTER TABLE public.rate_limit_violation ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        partition, first_at, end_at);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- drop_violation_partitions drops the partitions of the days before a day (in UTC), and what the default
-- one has of them. Yesterday's are always kept.
-- +goose StatementBegin
CREATE FUNCTION drop_violation_partitions(before date) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp
    SET lock_timeout = '2s'
AS $$
DECLARE
    partition text;
    dropped integer := 0;
BEGIN
    IF before > (now() AT TIME ZONE 'UTC')::date - 1 THEN
        RAISE EXCEPTION 'violations are kept for a day at least, so not dropped before %', before;
    END IF;
    FOR partition IN
        SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'public.rate_limit_violation'::regclass
            AND relname ~ '^rate_limit_violation_[0-9]{8}$' AND to_date(right(relname, 8), 'YYYYMMDD') < before
        ORDER BY relname
    LOOP
        EXECUTE format('DROP TABLE public.%I', partition);
        dropped := dropped + 1;
    END LOOP;
    DELETE FROM public.rate_limit_violation_default WHERE requested_at < before::timestamp AT TIME ZONE 'UTC';
    RETURN dropped;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION make_violation_partition(date) FROM PUBLIC;
REVOKE ALL ON FUNCTION drop_violation_partitions(date) FROM PUBLIC;
