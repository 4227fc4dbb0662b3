-- Revocations that brokers have to enforce: tokens of a deleted secret or account that were issued
-- before not_before count no more. A row goes when no such token can be alive, after the brokers
-- have dropped it. It points at no account: that goes earlier.

-- +goose Up

CREATE TABLE revocations (
    tenant_id              text NOT NULL,
    cluster_id             text NOT NULL,
    name                   text NOT NULL,        -- as the brokers have it: User:sa_…, Credential:sec_…
    not_before             timestamptz NOT NULL,
    generation             bigint NOT NULL DEFAULT 1,
    applied_generation     bigint NOT NULL DEFAULT 0,
    applied_at             timestamptz,
    problem                jsonb,
    created_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, cluster_id, name),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);

ALTER TABLE revocations ENABLE ROW LEVEL SECURITY;
ALTER TABLE revocations FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON revocations TO penstock_api
    USING (tenant_id = current_setting('app.tenant_id', true)) WITH CHECK (tenant_id = current_setting('app.tenant_id', true));
CREATE POLICY of_worker ON revocations TO penstock_worker USING (true) WITH CHECK (true);

GRANT SELECT, INSERT ON revocations TO penstock_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON revocations TO penstock_worker;
