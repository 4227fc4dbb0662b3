// Package cluster holds a cluster's rows and rules: its states and the moves
// allowed between them, the brokers, and the desired topics, quotas and access
// rules inside it with what of them the brokers enforce.
//
// It has two sides. The functions that take a pgx.Tx belong to the API: the
// transaction is bound to one tenant and row security applies. Worker belongs
// to the reconcilers: it claims due clusters for a time and writes only while
// the claim holds. Each claim has a term, raised by every new claim of that
// cluster; all of Worker's writes check it under the cluster's row lock, so a
// reconciler that was paused and overtaken changes nothing (ErrFenced).
//
// Desired state below a cluster (a topic, a quota, an access rule) is a row
// with a generation; applied_generation says which one the brokers enforce.
// A change raises the cluster's wake_seq and makes it due; a claim remembers
// the wake_seq that it saw, and Release makes the cluster due at once when it
// has moved on meanwhile: no change is slept over.
//
// Lock order: the cluster's row, then rows below it, then the tenant's audit
// head.
package cluster
