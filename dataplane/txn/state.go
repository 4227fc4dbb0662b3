package txn

import (
	"maps"
	"math"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// state is that of a transactional id, numbered as the records have it.
type state int8

const (
	stateEmpty state = iota
	stateOngoing
	statePrepareCommit
	statePrepareAbort
	stateCompleteCommit
	stateCompleteAbort
	stateDead              // never stored
	statePrepareEpochFence // Kafka's, never stored either
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

// String is the name that DescribeTransactions and ListTransactions use.
func (s state) String() string { return stateNames[s] }

// prepared says that the transaction is decided and its markers are under way.
func (s state) prepared() bool { return s == statePrepareCommit || s == statePrepareAbort }

const (
	noProducerID = coordinator.NoTransaction
	noEpoch      = int16(-1)
	noTime       = int64(-1)

	// lastClientEpoch is the highest epoch that a producer is given: one more is kept
	// for fencing it. A producer that has it gets a new producer id next.
	lastClientEpoch = math.MaxInt16 - 1
)

func exhausted(epoch int16) bool { return epoch >= lastClientEpoch }

// epochBump is the first transaction.version in which every end of a transaction gives
// its producer the next epoch (KIP-890).
const epochBump = 2

// partitions is a set; a value is never changed once others can see it.
type partitions map[protocol.TopicPartition]struct{}

func setOf(tps []protocol.TopicPartition) partitions {
	s := make(partitions, len(tps))
	for _, tp := range tps {
		s[tp] = struct{}{}
	}
	return s
}

func (s partitions) hasAll(tps []protocol.TopicPartition) bool {
	for _, tp := range tps {
		if _, ok := s[tp]; !ok {
			return false
		}
	}
	return true
}

func (s partitions) with(tps []protocol.TopicPartition) partitions {
	all := make(partitions, len(s)+len(tps))
	maps.Copy(all, s)
	for _, tp := range tps {
		all[tp] = struct{}{}
	}
	return all
}

// meta is what a record holds of a transactional id.
type meta struct {
	producerID int64
	previousID int64 // the producer id at the time of the record before
	nextID     int64 // the producer id from the end of the transaction on, if another
	start      int64 // of the transaction, ms since 1970, or noTime
	updated    int64 // ms since 1970
	parts      partitions
	timeout    int32 // ms
	epoch      int16
	// lastEpoch is the epoch that the producer had before it was given epoch on its own
	// word: a request with it may be the same once more. It is not stored.
	lastEpoch int16
	nextEpoch int16 // Kafka's, for two-phase commit (KIP-939); kept as it is
	client    int16 // transaction.version of whom the last change came from
	state     state
}
