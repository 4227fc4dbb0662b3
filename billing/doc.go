// Package billing turns what brokers metered into what tenants pay.
//
// Its ground is a ledger in Postgres: cumulative counters by cluster, broker,
// boot and principal, and hourly sums made of their differences. billing/metering
// writes it, reading each cluster's usage topic as an ordinary consumer. Every
// number in the ledger can be computed again from the topic.
package billing
