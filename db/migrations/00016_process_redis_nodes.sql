-- +goose Up
SET LOCAL lock_timeout = '2s';

-- A process reports which nodes of a Redis Cluster do not answer it.
ALTER TABLE api_process ADD COLUMN redis_down text[] NOT NULL DEFAULT '{}';
