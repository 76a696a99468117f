-- +goose Up
SET LOCAL lock_timeout = '2s';

ALTER TABLE api_key VALIDATE CONSTRAINT api_key_permissions_check;
