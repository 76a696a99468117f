-- +goose Up
SET LOCAL lock_timeout = '2s';

-- How a tenant's gateways say what a request is: for each kind of gateway, the mapping of a request to a check.
CREATE TABLE gateway (
    tenant_id  bigint      NOT NULL,
    kind       text        NOT NULL COLLATE "C", -- authorize: proxies that ask over HTTP; descriptors: over gRPC
    document   jsonb       NOT NULL,
    revision   bigint      NOT NULL,
    removed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT gateway_pkey PRIMARY KEY (tenant_id, kind),
    CONSTRAINT gateway_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT gateway_kind_check CHECK (kind IN ('authorize', 'descriptors')),
    CONSTRAINT gateway_document_check CHECK (jsonb_typeof(document) = 'object')
);

CREATE INDEX gateway_revision_idx ON gateway (tenant_id, revision, kind);

CREATE TRIGGER gateway_audit AFTER INSERT OR UPDATE OR DELETE ON gateway
    FOR EACH ROW EXECUTE FUNCTION audit_change('gateway', 'kind');
