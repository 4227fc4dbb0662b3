// Package chaos breaks a cluster in every way that it can think of while clients
// work on it, and checks that they were told the truth.
//
// The cluster, its doors and the schedule are those of package nemesis. Each rest has
// writers stand still, everything sent answered and read, every broker know the same
// whole cluster, and the replicas' files compared byte for byte.
//
// # The clients
//
// Each topic has two producers (franz-go, as it comes) and one way to produce:
// idempotent, acks=all without idempotence, acks=1, acks=0. Every record is a number
// that its writer never gives twice in a partition. Two readers read all from the
// start by requests of their own, so that each reply is known to be of a leader and an
// epoch, and ask for the ends of logs. Two members of a consumer group commit what
// they were given; two committers write rising offsets for groups without members.
//
// # The checks
//
// At once: two reads of an offset differ, a record that was never sent, one at or above
// the watermark that came with it, a watermark or stable offset that goes back under
// one leader epoch, a checksum, OFFSET_OUT_OF_RANGE, a record of acks=all that a
// client gives up. At a rest: something that does not heal, replicas that differ.
// At the end, when all has been read once more: what was acknowledged and is lost, or is at
// another offset than was said; duplicates and disorder of idempotent producers;
// logs that end below what was read; offsets that nobody can read; epochs that go
// down; an end (ListOffsets) below a record that was acknowledged before the question, by
// a leader of that record's epoch or a later one; commits that are lost or went back;
// records that the group has skipped.
//
// Not anomalies: the loss of a record with acks=1 or 0, duplicates without idempotence,
// a new leader's watermark below the old one's (it is raised soon; Kafka's is, too),
// and what a deposed leader answers who has not heard of its successor.
//
// # What is not simulated
//
// Lost page cache: kill -9 leaves it. That is what commitlog's and partition's power
// cuts are for. A full disk is a limit on the size of files (RLIMIT_FSIZE): a write is
// cut short and fails with EFBIG.
package chaos
