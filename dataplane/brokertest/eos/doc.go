// Package eos has chains of clients pass records on exactly once while a nemesis
// breaks the cluster and the clients, and checks that they did.
//
// # The work
//
// Two feeders send inputs that nobody has sent before to the first topic, with keys:
// one idempotent, one by transactions of which it aborts some on purpose. Three stages
// pass them on from topic to topic: a stage's members are processes of their own
// (the test binary started anew) that consume, produce and commit their offsets in one
// transaction (kgo.GroupTransactSession). A record's value says which transaction of
// each stage has passed it on. Some members speak the first version of the transaction
// protocol, with AddPartitionsToTxn, AddOffsetsToTxn and one epoch for many transactions,
// the others the second (KIP-890), as franz-go does by itself once transaction.version 2
// is finalized. A member that is given an error it cannot go on after ends, and is
// started anew under its transactional id, which fences what was left open.
//
// # What breaks
//
// All that package nemesis can do, with brokers sought out that coordinate the
// transactions of one member or the group of one stage; internal topics are reassigned
// like the others. Members are killed from outside, die in the midst of their own
// requests, leave and join, are stopped for longer than their session lasts, and come
// back while another has their place. Schedules made by hand may kill a member when its
// offsets are stored, before it asks for a commit.
//
// # The checks
//
// Each member tells what it is about to do and what came of it, by a clock that all
// processes share. Two readers of committed data and one that reads everything are
// always on; after the end one more reads all from the start. They look for
//
//   - dirty read: a record seen before its transaction was asked to commit, or that is
//     not committed in the end;
//   - aborted read: a record of a transaction that its client has aborted;
//   - torn transaction: some of a transaction's records are there, others are not;
//   - lost write: nothing is left of what was committed or acknowledged, or an input
//     is in one topic and not in the next;
//   - duplicate: an input is in a topic twice;
//   - reordered: a key's inputs are not in the order in which they were fed;
//   - dirty offsets, offsets back: a group's offsets that no transaction had asked to
//     commit, or that go back;
//   - lso stuck, lso back, lso above hw: at a rest, with nothing open, the stable offset has
//     to come up to the end of every partition, those of internal topics too;
//   - changed, invented, beyond the end, corrupt, out of range, given up, diverged, not
//     healed: what chaos means by them.
//
// Not anomalies: a new leader whose ends lag for a moment, a deposed coordinator that
// tells older offsets than its successor, a transaction without an outcome of which
// nothing is there.
//
// # The first version of the protocol
//
// It cannot tell a request that arrives late from one of the next transaction: that is
// why there is a second. With members that speak it nothing that a cut has held is
// delivered late, and they wait longer for an answer than any process is stopped. With
// -eos.first 0 late requests are part of the game.
package eos
