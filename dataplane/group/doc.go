// Package group is the consumer-group coordinator: membership and rebalancing in
// the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) and in the
// next one (ConsumerGroupHeartbeat, KIP-848), committed offsets
// (OffsetCommit, OffsetFetch; in transactions, TxnOffsetCommit) and their
// administration (DescribeGroups, ListGroups, DeleteGroups, OffsetDelete).
//
// # Ownership
//
// Every group belongs to one partition of __consumer_offsets, and the broker
// that leads this partition coordinates the group, see package coordinator. A
// partition that was lost takes its groups with it: whoever waits is answered
// NOT_COORDINATOR.
//
// Everything that has to outlive the broker is a record in that partition, in
// Kafka's own formats (see records.go), so that Kafka's tools and brokers read
// what we write and the reverse. A commit is acknowledged, and becomes visible
// to OffsetFetch, only when the storage has reported it committed.
//
// # States of a group
//
//	Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance
//	  ▲                ▲   │ nobody is left                                │ leader's SyncGroup
//	  └────────────────┼───┘                                               │ is stored
//	                   └──join with news, leave, member timed out── Stable ◀┘
//
// That is a classic group. One with a consumerGroup (consumer.go) is a consumer group:
// Empty, Assigning while its target assignment is older than its epoch, Reconciling while
// members are on their way to it, Stable.
//
// Dead is the state of a group that was deleted, expired or lost; such a group
// is not in its shard's table any more.
//
// # Concurrency
//
// A group has one mutex, and everything about it is decided with that mutex
// held. What a decision causes outside (replies, storage appends) is collected
// and done after the mutex has been given back, so a caller's done function may
// call the coordinator again. Appends pass through the shard's queue, filled
// while the group's mutex is held. The lock order is package coordinator's;
// Coordinator.openMu and an openTransactions.mu, of which neither is held while
// anything else is taken, may be taken with a group's mutex held.
package group
