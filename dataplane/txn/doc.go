// Package txn is the transaction coordinator: who may write under a transactional id
// (InitProducerId), what a transaction touches (AddPartitionsToTxn, AddOffsetsToTxn), how
// it ends (EndTxn), and that every partition learns of it (WriteTxnMarkers). KIP-98, with
// KIP-360 (epochs bumped on the producer's word) and KIP-890 (a new epoch at each end,
// partitions added on the brokers' word).
//
// # Ownership
//
// Every transactional id belongs to one partition of __transaction_state, and the broker
// that leads this partition coordinates it, see package coordinator. What has to outlive
// the broker is a record there, in Kafka's own formats (records.go).
//
// # States of a transactional id
//
//	          partition added          EndTxn (or time is up, or a newer producer)
//	Empty ──────────────────▶ Ongoing ──────────────────▶ PrepareCommit, PrepareAbort
//	  ▲                          ▲                                   │ every partition has
//	  │ InitProducerId           │ partition added                   ▼ its marker
//	  └──────────────────────────┴─────────────────── CompleteCommit, CompleteAbort
//
// A transaction is decided by its Prepare record, once that is committed: from then on
// nothing but its markers and the Complete record can follow, whoever coordinates it.
// The leaders of the partitions are told only then, and again and again until each has
// its marker; a partition that was deleted needs none. Kafka's PrepareEpochFence has no
// place here: a producer is fenced by the very record that aborts its transaction. Dead
// is an id that expired or was lost, which is in its shard's table no more.
//
// # What a loaded partition stands on
//
// A new leader reads its log to the end, which may be above the high watermark. What
// stands there is not committed yet, and would be gone if this leader failed as well. So
// nothing of a partition is served, and no marker sent, before all that was read is
// committed (coordinator.Config.Settle): what is acted upon can not be taken back.
//
// # Concurrency
//
// A transactional id has one mutex, and everything about it is decided with that mutex
// held. What a decision causes outside (replies, appends, markers) is collected and done
// after the mutex has been given back. One record of an id is in flight at a time:
// requests that come meanwhile wait a little (Config.Patience) and are then answered
// CONCURRENT_TRANSACTIONS, which clients retry.
//
// Lock order: package coordinator's; sender.mu comes before Partitions.mu, and no transaction's
// mutex is held with it.
package txn
