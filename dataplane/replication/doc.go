// Package replication moves batches from leaders to this broker's followers
// (Fetchers), and wishes for other in-sync sets from this broker's leaders to
// the controller (ISRSender).
//
// Fetchers keeps num.replica.fetchers goroutines per leader broker, each with
// one connection, one fetch in flight and one incremental fetch session
// (KIP-227). A fetcher owns no state of the log: before each request it asks
// the Partition where to go on, and what it brings is refused by the Partition
// if its role or its log has changed since. So partitions may be added and
// removed at any time, also while a fetch is under way.
//
// Locks: Fetchers.mu before thread.mu; neither is held over the network or
// while a Partition is called.
package replication
