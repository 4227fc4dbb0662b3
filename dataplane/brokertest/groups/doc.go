// Package groups lets many members join, leave, freeze and die in consumer groups of
// a cluster whose coordinators are killed, and checks from the members' own logs that
// no partition ever had two owners, that committed offsets never went back, and that
// no more rebalances took place than the members have caused.
//
// # The members
//
// Each is a franz-go client as it comes. Many live in one process, a worker; workers
// are killed by SIGKILL and stopped by SIGSTOP with all that is in them. Between a member
// and its brokers stands a tap, in the client's dialer, which reads the requests and
// answers of group membership as they pass, holds a member's packets when it is to be
// cut off, and delivers them late. What a member was told and did goes to the log of
// its worker, a file, one line an event, before the client or the application can act on it. All times are CLOCK_MONOTONIC of the
// one machine that all of them run on: SIGSTOP does not stop it.
//
// A member that starts again is another incarnation, with a name that nothing had
// before. Incarnations with one instance id are the same static member (KIP-345).
//
// # Ownership, and its fences
//
// An incarnation owns a partition from the time its client begins to call the function
// for assigned partitions with it. That ends with the first of these:
//
//   - released: the function for revoked or lost partitions has returned. The
//     client tells the coordinator only afterwards that it has let go.
//   - fenced: an answer has said that it is not a member, or not in this generation
//     (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH).
//     It counts from when it was read, so a coordinator that is wrong to say so has
//     made two owners by the time that it says it to the first.
//   - its session is over by its own clock: since the newest request that the
//     coordinator has answered as one of a member was sent, a session timeout has passed.
//     The coordinator's clock for it cannot have started before that. A request that
//     succeeds later, as the same incarnation, proves that it was a member all the time,
//     so only the newest counts.
//   - its time to take part in a rebalance is over by its own clock. Classic protocol:
//     a rebalance timeout since the newest request was sent whose answer was not
//     REBALANCE_IN_PROGRESS; the rebalance began after it. KIP-848: a rebalance timeout
//     since the heartbeat was sent that was answered with an assignment without the
//     partition.
//   - replaced: another incarnation with its instance id has sent a JoinGroup without
//     a member id. In KIP-848 that is refused as long as the first has not left.
//
// A process that was killed has no clock and no owner's use of its partitions, but
// the coordinator cannot know that: the intervals of its members end like those
// of members that are only silent.
//
// All of this errs in one direction. The intervals are at most as long as the protocol
// guarantees them, so two of them that overlap are a fault of the coordinator or of the client, never of a
// clock. In return a partition may have had two users for a while without an
// anomaly: a member that was frozen does not know that its session is over until it
// asks. That its commits are refused then is what the next check is for.
//
// A coordinator that was deposed and has not heard of it may answer heartbeats while its
// successor's clock for the member runs, and tell older offsets, as Kafka's may: the protocol has no fence there but the
// generation of a commit. So the brokers' logs are read for who loaded the group when, and what
// another broker has answered to a request that was sent later keeps nobody's session up, and
// its offsets may be old.
//
// # The anomalies
//
//   - two owners: intervals of two incarnations overlap.
//   - fenced early: UNKNOWN_MEMBER_ID for a heartbeat of a member that was in the
//     group and whose session and rebalance timeout were not over by its own clock.
//   - stray commit: a commit was acknowledged that was sent when somebody else
//     had been given the partition. Members commit only what they own, in their own opinion.
//   - offset back: an answer to OffsetFetch, to an observer or a member, is below an
//     offset that another answer had shown, or that had been acknowledged, before the
//     question. Members that have sent a commit and did not get its answer never commit again, since it
//     might arrive after a later one.
//   - offset invented: OffsetFetch shows more than anybody had committed.
//   - storm: more generations between two rests than the changes of membership and of the
//     coordinator in that time allow, see Allowed. At a rest the group was whole and still, so
//     whatever had changed before it is no excuse any more.
//   - restless: a new generation while nothing changed.
//   - not healed: a partition without an owner, or a member without the newest generation,
//     long after everything was mended.
package groups
