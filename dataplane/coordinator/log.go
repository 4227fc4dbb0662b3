package coordinator

import "penstock/dataplane/recordbatch"

// Record is one record of an internal topic; it has no headers.
type Record = recordbatch.Record

// Batch is what is appended at once.
type Batch struct {
	Records []Record
	// Producer is whose transaction the records are part of, NoProducer if they count at
	// once.
	Producer Producer
}

// Producer is a producer id with the epoch that it writes under.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoProducer is the producer of records outside of transactions.
var NoProducer = Producer{ID: NoTransaction, Epoch: -1}

// Log is a partitioned, replicated log: an internal topic.
type Log interface {
	// Append writes the batch, after those of every call that returned before, to
	// the partition with acks=all. done is called exactly once, on any goroutine and
	// maybe before Append returns: with nil when the records are committed, or a
	// *kerr.Error in the chain.
	Append(partition int32, b Batch, done func(error))

	// Read gives all that the log holds from its start to its END at the time of the
	// call, in order. The end and not the high watermark: a new leader's high
	// watermark may lag behind what was committed under the old one, and stopping
	// there would take acknowledged writes back. Key and value may be reused after fn
	// returns. An error of fn ends the reading and is returned.
	Read(partition int32, fn func(Logged) error) error

	// Partitions is the number of partitions, 0 while the topic does not exist.
	Partitions() int32
}

// Logged is one thing that a partition's log holds: a record, or the marker that
// ends a transaction.
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
