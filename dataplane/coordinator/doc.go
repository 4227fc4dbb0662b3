// Package coordinator is what the coordinators of groups and of transactions have in
// common. Each has an internal topic whose partitions share out its entities (groups,
// transactional ids); whoever leads a partition coordinates the entities of it, and
// everything that has to outlive the broker is a record there.
//
// Partitions keeps the table: OnLeader and OnResign say what this broker leads. A
// partition that was won is read from its log first, in the background; until that is
// done its entities answer COORDINATOR_LOAD_IN_PROGRESS. A partition that was lost takes
// its entities with it.
//
// A Shard is one partition under one uninterrupted leadership: the next one gets a shard
// of its own, so nothing that an old one started can touch its entities. Writes pass
// through one queue a shard, filled while an entity's mutex is held: the log has them in
// the order in which they were decided, whichever goroutine carries them out.
//
// Lock order: Partitions.mu, Shard.mu, an entity's own mutex, Shard.outMu. In practice
// no two are held at once but the last two.
package coordinator
