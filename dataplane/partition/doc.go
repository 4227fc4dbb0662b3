// Package partition holds the rules of replicas: who may append, what may be
// read, when a record is committed, who is in sync.
//
// A Partition is this broker's replica of one partition, as leader or as
// follower. The Manager holds all of them, takes the controller's orders
// (LeaderAndIsr, StopReplica), serves appends, fetches and offset queries, and
// runs what goes by the clock: the in-sync scan, retention and checkpoints.
//
// Locks, outermost first:
//
//	Manager.ctl      one controller order at a time
//	Manager.configs  one change of a topic's configuration, or new replica, at a time
//	Partition.append one append, truncation or change of role at a time; held over disk writes
//	checkpoints.mu   one checkpoint file at a time
//	Manager.mu       the table of partitions
//	Partition.state  role, epochs, ISR, remote replicas, high watermark; never held over I/O
//
// The purgatories are checked, the ISR changer and the fetchers are called with
// none of these held but ctl. TryComplete of a waiting operation takes
// Partition.state only.
package partition
