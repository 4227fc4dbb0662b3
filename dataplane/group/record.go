package group

import "penstock/dataplane/recordbatch"

// Record is one record of the groups' log; it has no headers.
type Record = recordbatch.Record

// Logged is one thing that a partition's log holds: a record, or the marker
// that ends a transaction.
type Logged struct {
	Record
	Producer int64 // whose transaction it is part of; NoTransaction if of none
	End      TransactionEnd
}

// NoTransaction stands for a producer id.
const NoTransaction = -1

// TransactionEnd says whether something is a marker, and of what kind.
type TransactionEnd int8

// The kinds of TransactionEnd; a record is none.
const (
	NotAnEnd TransactionEnd = iota
	Committed
	Aborted
)
