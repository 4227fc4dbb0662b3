-- The control plane's tables. Ids are text: a typed prefix and 26 characters of sortable base32.
-- Every table that holds one tenant's data starts its key with tenant_id; children point at their
-- parents by (tenant_id, id), so that no row can hang under another tenant's parent.

-- +goose Up

CREATE TABLE plans (
    id          text PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    limits      jsonb NOT NULL, -- tenants.Limits; a row is never changed, so what a tenant agreed to stands
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tenants (
    id          text PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    plan_id     text NOT NULL REFERENCES plans (id),
    created_at  timestamptz NOT NULL DEFAULT now()
);

-- Fleet operators belong to no tenant.
CREATE TABLE operators (
    id            text PRIMARY KEY, -- also the OAuth client id
    name          text NOT NULL,
    secret_hash   bytea NOT NULL CHECK (length(secret_hash) = 32),
    last_used_at  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now()
);

-- A tenant's automation accounts: they call the API, never a broker.
CREATE TABLE accounts (
    tenant_id   text NOT NULL REFERENCES tenants (id),
    id          text NOT NULL UNIQUE, -- also the OAuth client id
    name        text NOT NULL,
    role        text NOT NULL DEFAULT 'admin' CHECK (role IN ('admin', 'viewer')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);

-- People of a tenant.
CREATE TABLE members (
    tenant_id   text NOT NULL REFERENCES tenants (id),
    id          text NOT NULL,
    email       text NOT NULL,
    role        text NOT NULL CHECK (role IN ('admin', 'viewer')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, email)
);

CREATE TABLE clusters (
    tenant_id              text NOT NULL REFERENCES tenants (id),
    id                     text NOT NULL UNIQUE,
    name                   text NOT NULL,
    brokers                integer NOT NULL CHECK (brokers BETWEEN 1 AND 100),
    config                 jsonb NOT NULL DEFAULT '{}',     -- Kafka broker settings, string to string
    state                  text NOT NULL DEFAULT 'accepted'
        CHECK (state IN ('accepted', 'provisioning', 'ready', 'updating', 'deleting', 'deleted', 'failed')),
    generation             bigint NOT NULL DEFAULT 1,
    observed_generation    bigint NOT NULL DEFAULT 0,
    bootstrap              text NOT NULL DEFAULT '',        -- host:port,host:port of the client listener
    internal_bootstrap     text NOT NULL DEFAULT '',        -- of the listener that the control plane uses
    zookeeper_connect      text NOT NULL DEFAULT '',
    sealed_credentials     bytea,                           -- inter-broker, control and ZooKeeper passwords, sealed
    problem                jsonb,                           -- why the last step failed, an RFC 9457 object
    next_reconcile_at      timestamptz NOT NULL DEFAULT now(),
    attempts               integer NOT NULL DEFAULT 0,
    wake_seq               bigint NOT NULL DEFAULT 0,       -- raised by each change of desired state below the cluster
    lease_holder           text NOT NULL DEFAULT '',
    lease_term             bigint NOT NULL DEFAULT 0,       -- fences side effects: raised by each claim
    lease_until            timestamptz,
    deletion_requested_at  timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX clusters_live_name ON clusters (tenant_id, name) WHERE state <> 'deleted';
CREATE INDEX clusters_due ON clusters (next_reconcile_at) WHERE state <> 'deleted';

CREATE TABLE cluster_brokers (
    tenant_id      text NOT NULL,
    cluster_id     text NOT NULL,
    broker_id      integer NOT NULL CHECK (broker_id >= 0),
    host           text NOT NULL DEFAULT '127.0.0.1',
    client_port    integer NOT NULL CHECK (client_port BETWEEN 1 AND 65535),
    internal_port  integer NOT NULL CHECK (internal_port BETWEEN 1 AND 65535),
    desired        text NOT NULL DEFAULT 'running' CHECK (desired IN ('running', 'stopped', 'removed')),
    state          text NOT NULL DEFAULT 'planned'
        CHECK (state IN ('planned', 'starting', 'running', 'stopped', 'failed', 'removed')),
    status         jsonb NOT NULL DEFAULT '{}',             -- what the engine last saw: pid, start time, folder
    generation     bigint NOT NULL DEFAULT 1,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, cluster_id, broker_id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id),
    CHECK (client_port <> internal_port)
);
-- Two brokers can never be given one port; written by the worker alone, so it tells no tenant of another.
CREATE UNIQUE INDEX cluster_brokers_client_port ON cluster_brokers (host, client_port) WHERE state <> 'removed';
CREATE UNIQUE INDEX cluster_brokers_internal_port ON cluster_brokers (host, internal_port) WHERE state <> 'removed';

-- Identities that log in at a cluster's brokers, as User:<id>.
CREATE TABLE service_accounts (
    tenant_id              text NOT NULL,
    cluster_id             text NOT NULL,
    id                     text NOT NULL UNIQUE, -- also the OAuth client id and the Kafka principal's name
    name                   text NOT NULL,
    description            text NOT NULL DEFAULT '',
    deletion_requested_at  timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, cluster_id, id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);
CREATE UNIQUE INDEX service_accounts_live_name ON service_accounts (tenant_id, cluster_id, name)
    WHERE deletion_requested_at IS NULL;

-- Client secrets: only the SHA-256 of 256 random bits is kept. A revoked secret is a deleted row.
CREATE TABLE secrets (
    tenant_id           text NOT NULL,
    id                  text NOT NULL,
    account_id          text,
    service_account_id  text,
    hash                bytea NOT NULL CHECK (length(hash) = 32),
    prefix              text NOT NULL, -- the first characters, to tell two secrets apart
    expires_at          timestamptz,
    last_used_at        timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, account_id) REFERENCES accounts (tenant_id, id),
    FOREIGN KEY (tenant_id, service_account_id) REFERENCES service_accounts (tenant_id, id),
    CHECK (num_nonnulls(account_id, service_account_id) = 1)
);
CREATE INDEX secrets_of_account ON secrets (tenant_id, account_id);
CREATE INDEX secrets_of_service_account ON secrets (tenant_id, service_account_id);

-- Desired objects inside a cluster. applied_generation is what the brokers were last brought to;
-- the object is enforced when it equals generation. A wish to delete is a time, the row goes when it is done.
CREATE TABLE topics (
    tenant_id              text NOT NULL,
    cluster_id             text NOT NULL,
    id                     text NOT NULL,
    name                   text NOT NULL,
    partitions             integer NOT NULL CHECK (partitions BETWEEN 1 AND 100000),
    replication_factor     integer NOT NULL CHECK (replication_factor BETWEEN 1 AND 32767),
    configs                jsonb NOT NULL DEFAULT '{}',
    kafka_topic_id         text NOT NULL DEFAULT '', -- the brokers' own id, known once it is made
    generation             bigint NOT NULL DEFAULT 1,
    applied_generation     bigint NOT NULL DEFAULT 0,
    applied_at             timestamptz,
    problem                jsonb,
    deletion_requested_at  timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, cluster_id, name),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);

CREATE TABLE quotas (
    tenant_id              text NOT NULL,
    cluster_id             text NOT NULL,
    service_account_id     text NOT NULL,
    bytes_in_per_second    bigint CHECK (bytes_in_per_second > 0),   -- of the whole cluster; null: no limit
    bytes_out_per_second   bigint CHECK (bytes_out_per_second > 0),
    request_percentage     double precision CHECK (request_percentage > 0), -- of one thread's time
    generation             bigint NOT NULL DEFAULT 1,
    applied_generation     bigint NOT NULL DEFAULT 0,
    applied_at             timestamptz,
    problem                jsonb,
    deletion_requested_at  timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, cluster_id, service_account_id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id),
    FOREIGN KEY (tenant_id, cluster_id, service_account_id) REFERENCES service_accounts (tenant_id, cluster_id, id)
);

CREATE TABLE acls (
    tenant_id              text NOT NULL,
    cluster_id             text NOT NULL,
    id                     text NOT NULL,
    service_account_id     text NOT NULL,
    host                   text NOT NULL DEFAULT '*',
    resource_type          text NOT NULL CHECK (resource_type IN ('topic', 'group', 'cluster', 'transactional_id')),
    resource_name          text NOT NULL,
    pattern_type           text NOT NULL CHECK (pattern_type IN ('literal', 'prefixed')),
    operation              text NOT NULL,
    permission             text NOT NULL CHECK (permission IN ('allow', 'deny')),
    generation             bigint NOT NULL DEFAULT 1,
    applied_generation     bigint NOT NULL DEFAULT 0,
    applied_at             timestamptz,
    problem                jsonb,
    deletion_requested_at  timestamptz,
    created_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id),
    FOREIGN KEY (tenant_id, cluster_id, service_account_id) REFERENCES service_accounts (tenant_id, cluster_id, id)
);
CREATE UNIQUE INDEX acls_live ON acls (tenant_id, cluster_id, service_account_id, host, resource_type,
    resource_name, pattern_type, operation, permission) WHERE deletion_requested_at IS NULL;

CREATE TABLE operations (
    tenant_id    text NOT NULL REFERENCES tenants (id),
    id           text NOT NULL,
    kind         text NOT NULL,  -- cluster.create, cluster.delete
    cluster_id   text NOT NULL,
    state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'running', 'succeeded', 'failed')),
    step         text NOT NULL DEFAULT '',
    percent      integer NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
    problem      jsonb,
    created_at   timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);
CREATE INDEX operations_open ON operations (tenant_id, cluster_id) WHERE finished_at IS NULL;

-- One hash chain a tenant; the fleet's own deeds are under 'system'. See controlplane/audit for the hash.
CREATE TABLE audit_heads (
    tenant_id  text PRIMARY KEY,
    seq        bigint NOT NULL,
    hash       bytea NOT NULL
);
CREATE TABLE audit (
    tenant_id   text NOT NULL,
    seq         bigint NOT NULL CHECK (seq > 0),
    id          text NOT NULL,
    at          timestamptz NOT NULL,
    actor       text NOT NULL,
    action      text NOT NULL,
    resource    text NOT NULL,
    request_id  text NOT NULL,
    detail      text NOT NULL,  -- JSON as it was hashed
    prev_hash   bytea NOT NULL,
    hash        bytea NOT NULL,
    PRIMARY KEY (tenant_id, seq)
);
-- +goose StatementBegin
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit rows are never changed or removed';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- What happened, in the transaction that did it. NOTIFY penstock_hint only tells that there may be something new.
CREATE TABLE events (
    tenant_id   text NOT NULL,
    id          text NOT NULL,
    kind        text NOT NULL,
    subject     text NOT NULL,
    payload     jsonb NOT NULL DEFAULT '{}',
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(), -- readers stay below pg_snapshot_xmin
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);

-- Reading of the clusters' usage topics: offset, last cumulative counters and hourly sums move in one transaction.
CREATE TABLE usage_offsets (
    tenant_id    text NOT NULL,
    cluster_id   text NOT NULL,
    partition    integer NOT NULL,
    next_offset  bigint NOT NULL CHECK (next_offset >= 0),
    read_at      timestamptz NOT NULL DEFAULT now(), -- also raised when a poll found nothing new
    PRIMARY KEY (tenant_id, cluster_id, partition),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);
CREATE TABLE usage_counters (
    tenant_id   text NOT NULL,
    cluster_id  text NOT NULL,
    broker_id   integer NOT NULL,
    boot_epoch  bigint NOT NULL,
    principal   text NOT NULL,   -- as in the record: User:sa_...
    direction   text NOT NULL CHECK (direction IN ('in', 'out')),
    seq         bigint NOT NULL, -- of the record that brought it; an older one changes nothing
    bytes       bigint NOT NULL CHECK (bytes >= 0),
    records     bigint NOT NULL CHECK (records >= 0),
    requests    bigint NOT NULL CHECK (requests >= 0),
    at          timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id, broker_id, boot_epoch, principal, direction),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);
CREATE TABLE usage_hourly (
    tenant_id   text NOT NULL,
    cluster_id  text NOT NULL,
    principal   text NOT NULL,
    direction   text NOT NULL CHECK (direction IN ('in', 'out')),
    hour        timestamptz NOT NULL, -- start of the half-open hour, UTC
    bytes       bigint NOT NULL,
    records     bigint NOT NULL,
    requests    bigint NOT NULL,
    PRIMARY KEY (tenant_id, cluster_id, principal, direction, hour),
    FOREIGN KEY (tenant_id, cluster_id) REFERENCES clusters (tenant_id, id)
);

-- The token server's keys. The private half is sealed with the key file, so the database alone can sign nothing.
CREATE TABLE signing_keys (
    kid             text PRIMARY KEY,
    alg             text NOT NULL CHECK (alg = 'ES256'),
    public_jwk      jsonb NOT NULL,
    sealed_private  bytea NOT NULL,
    signs_from      timestamptz NOT NULL, -- published before, signs from here on
    retires_at      timestamptz,          -- set when the next key takes over; leaves the JWKS then
    created_at      timestamptz NOT NULL DEFAULT now()
);

-- Answers to POSTs that carried an Idempotency-Key, stored by the transaction that did the work.
CREATE TABLE idempotency_keys (
    tenant_id        text NOT NULL, -- 'system' for operators
    principal        text NOT NULL,
    method           text NOT NULL,
    path             text NOT NULL,
    key              text NOT NULL,
    request_hash     bytea NOT NULL,
    status           integer NOT NULL,
    sealed_response  bytea NOT NULL, -- it may hold a secret shown once
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, principal, method, path, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
