// Package meter counts what each principal has produced and fetched, so that a
// killed broker loses and doubles nothing, and publishes the sums.
//
// # What is counted
//
// In: the bytes of a batch as it lies in the log, its records, and one request
// for each append, when the batch is committed (below the high watermark); a
// duplicate of an idempotent producer is never reported to the meter and so not
// counted. Out: the record bytes that have been handed to a client, and one
// request for each. The broker's own traffic has an empty principal and is not
// counted.
//
// # How it survives
//
// Counters and the journal of appended but not committed batches lie in a file
// that is mapped shared: what the process has stored is in the page cache, and
// that outlives the process. A change that takes several stores (moving a batch
// from the journal into a counter) is first written whole, with the absolute
// new values, to the one op record of the file and marked valid; opening the
// file redoes a valid op, which does no harm twice. Each start of the broker is
// a boot with an epoch of its own, greater than all before. Opening turns the
// file of the last boot into
//
//   - the final record(s) of that boot, kept in a file of its own until they are
//     published, with the sequence number after the last one used, and
//   - a new file, with zero counters and the old journal: batches whose fate is
//     not known yet are counted, or not, by the boot in which it is known.
//
// The rename of the new file over the old is the commit point: before it
// everything can be done over, after it the old boot is closed.
//
// # How exact
//
//   - Appended should be called before the batch is written, with Truncated(base)
//     if the write then fails, and Truncated(end of log) once when a partition is
//     loaded. Then a kill at any instant is exact. Called after the write, a batch
//     that was written but not reported when the process was killed is not
//     counted if it is committed later; it was not acknowledged either.
//   - Committed must be called on followers, too: a leader that was killed learns
//     as a follower what became of its last batches. Its followers never counted
//     them.
//   - A partition that moves away (Removed) or a broker that never comes back
//     takes its journal along: what was appended there and not yet known to be
//     committed is not counted, to the tenant's benefit.
//   - An entry of the journal that nobody has settled for a week is dropped.
//   - When the journal is nearly full, adjacent batches of one principal share an
//     entry; a truncation inside of such an entry keeps the share of its records.
//     When it is full, batches are counted when they are appended.
//   - More principals than MaxPrincipals are counted as usage.Overflow.
//   - Power loss may take back what the page cache held since the last publish.
//     Published values stand: readers take the greatest value of a boot.
//   - An unclean leader election takes back what was committed; it stays counted.
//
// Locks: Meter.mu guards file and maps, and is held for some stores at a time,
// never during I/O. The publishing goroutine is the only one to touch the
// outbox.
package meter
