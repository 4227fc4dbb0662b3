// Package admission is the one place where the broker refuses or delays:
// client quotas, the budget of request memory and the limits of connections.
//
// Quotas. A client is (user, client id). The quota in force for it is the most
// specific of eight levels that is set:
//
//	user + client, user + default client, user,
//	default user + client, default user + default client, default user,
//	client, default client
//
// The level that matches also names the bucket that is charged: a user level
// has one bucket for all client ids of the user, a client level one for all
// users of the client id, a level with both one for the pair. The level is
// looked up at every charge, so a change holds at once.
//
// A bucket keeps Kafka's sampled rate: samples of one window each, and one more
// than configured so that the oldest one may overlap the monitored time. A
// sample whose last event is samples x window ago is emptied. The rate is the
// sum over W, the time since the start of the oldest live sample, at least
// (samples-1) windows. A charge is recorded first and checked after; above the
// bound the throttle is (rate-bound)/bound x W. So a client that comes from
// rest may burst (samples-1) windows' worth.
//
// Locks: Quotas.mu serialises Update and is taken before nothing else; charges
// read an immutable snapshot, then take one shard's lock for the lookup and one
// bucket's lock, never both at once.
package admission
