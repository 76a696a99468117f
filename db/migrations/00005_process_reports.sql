-- +goose Up

-- What each process that answers checks last said of itself: see the package fleet. A row that is a day
-- old goes when another is written.
CREATE TABLE api_process (
    process_id      text        NOT NULL COLLATE "C", -- of one run
    name            text        NOT NULL COLLATE "C",
    version         text        NOT NULL,
    started_at      timestamptz NOT NULL,
    reported_at     timestamptz NOT NULL DEFAULT now(),
    rules_loaded    boolean     NOT NULL,
    rules           bigint      NOT NULL,
    rules_age_ms    bigint      NOT NULL,
    database        text        NOT NULL,
    redis           text        NOT NULL,
    checks          bigint      NOT NULL, -- since the report before
    degraded        bigint      NOT NULL, -- those among them that were decided without Redis
    span_ms         bigint      NOT NULL, -- how long that time was
    CONSTRAINT api_process_pkey PRIMARY KEY (process_id)
);
