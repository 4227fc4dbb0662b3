-- Plans to start with; operators add others through the API.

-- +goose Up

INSERT INTO plans (id, name, limits) VALUES
    ('plan_00000000000000000000000001', 'developer', '{"clusters": 3, "brokers_per_cluster": 3, "topics_per_cluster": 100,
      "partitions_per_cluster": 1000, "service_accounts": 50, "produce_bytes_per_second": 104857600,
      "fetch_bytes_per_second": 209715200, "request_percentage": 800, "connections_per_broker": 2000,
      "retention_bytes_per_partition": 107374182400}'),
    ('plan_00000000000000000000000002', 'standard', '{"clusters": 20, "brokers_per_cluster": 9, "topics_per_cluster": 2000,
      "partitions_per_cluster": 20000, "service_accounts": 1000, "produce_bytes_per_second": 1073741824,
      "fetch_bytes_per_second": 3221225472, "request_percentage": 3200, "connections_per_broker": 20000,
      "retention_bytes_per_partition": 1099511627776}');
