// Package planted names a bug that is there on purpose, for the checkers of whole
// clusters to find: a checker that finds nothing has to show that it would. Bugs are
// built in by -tags plantedbug only, and then wait for their name in PLANTED_BUG.
package planted

// The bugs, by what they do.
const (
	EarlyWatermark = "early watermark" // the leader does not wait for one of its followers
	NoTruncation   = "no truncation"   // a follower keeps what its new leader does not have

	StableAtWatermark = "stable at watermark" // open transactions do not hold the stable offset back
	AbortedUnlisted   = "aborted unlisted"    // readers of committed data are not told what was aborted
	AnySequence       = "any sequence"        // a producer's batches are taken in any order, and some refused once
	MarkerSkipped     = "marker skipped"      // a partition's markers are acknowledged and not written
	MarkerTurned      = "marker turned"       // a partition gets the abort of a transaction that commits
	CommitForAbort    = "commit for abort"    // an abort commits
	NoFencing         = "no fencing"          // commits are taken of any generation
	CommitsInMemory   = "commits in memory"   // offsets are acknowledged and not written
	Restless          = "restless"            // heartbeats ask for one rebalance after the other
	EarlyExpiry       = "early expiry"        // a session ends in a third of its time
	NoWaiting         = "no waiting"          // a rebalance does not wait for all members

	OffsetsLost      = "offsets lost"           // a commit leaves the group's offsets as they were
	OffsetsOfAborted = "offsets of the aborted" // an abort commits the group's offsets
	OffsetsBack      = "offsets back"           // an abort takes the group's offsets back by some
)
