-- Two roles, neither the owner nor able to bypass row security: penstock_api sees the tenant named by
-- app.tenant_id in its transaction and nothing when none is named; penstock_worker (reconcilers, token
-- endpoint, operators' calls) sees every tenant by policies of its own.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['penstock_api', 'penstock_worker'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOBYPASSRLS NOINHERIT', r);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- another database of this server was migrated at the same time
            END;
        END IF;
        IF NOT pg_has_role(current_user, r, 'MEMBER') THEN
            EXECUTE format('GRANT %I TO CURRENT_USER', r);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['accounts', 'members', 'clusters', 'cluster_brokers', 'service_accounts',
        'secrets', 'topics', 'quotas', 'acls', 'operations', 'audit_heads', 'audit', 'events',
        'usage_offsets', 'usage_counters', 'usage_hourly', 'idempotency_keys'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY of_tenant ON %I TO penstock_api
            USING (tenant_id = current_setting(''app.tenant_id'', true))
            WITH CHECK (tenant_id = current_setting(''app.tenant_id'', true))', t);
        EXECUTE format('CREATE POLICY of_worker ON %I TO penstock_worker USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
-- +goose StatementEnd

-- A tenant may read its own row.
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON tenants TO penstock_api
    USING (id = current_setting('app.tenant_id', true)) WITH CHECK (id = current_setting('app.tenant_id', true));
CREATE POLICY of_worker ON tenants TO penstock_worker USING (true) WITH CHECK (true);

GRANT SELECT ON plans, tenants TO penstock_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON accounts, members, clusters, service_accounts, secrets, topics,
    quotas, acls TO penstock_api;
GRANT SELECT, INSERT, UPDATE ON operations, audit_heads, idempotency_keys TO penstock_api;
GRANT SELECT, INSERT ON audit, events TO penstock_api;
GRANT SELECT ON cluster_brokers, usage_offsets, usage_counters, usage_hourly TO penstock_api;

GRANT SELECT, INSERT, UPDATE, DELETE ON plans, tenants, operators, accounts, members, clusters, cluster_brokers,
    service_accounts, secrets, topics, quotas, acls, operations, events, usage_offsets, usage_counters,
    usage_hourly, signing_keys, idempotency_keys TO penstock_worker;
GRANT SELECT, INSERT, UPDATE ON audit_heads TO penstock_worker;
GRANT SELECT, INSERT ON audit TO penstock_worker;
