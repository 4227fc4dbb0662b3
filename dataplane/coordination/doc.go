// Package coordination is a cluster's state in ZooKeeper, znode by znode as
// Kafka 3.9 lays it out, so that a Kafka broker can sit in the same cluster.
//
// A Client owns one session at a time. When the server ends the session, the
// client says so (OnExpired), makes a new one, runs the session hooks in the
// order in which they were added (OnSession: the broker registers again, then
// the controller takes part in the election again), and wakes every watch,
// whose owner re-reads and so arms it again. Each session has a connection of
// its own: what was queued under a session that has ended is not carried out
// under the next one.
//
// Watches are level-triggered: a handler is told "this may have changed" and
// reads again. Events that come in bursts are merged; none is lost over a
// reconnection or a new session.
//
// Lock order: Client.hookMu before Client.mu; watches.mu is a leaf.
package coordination
