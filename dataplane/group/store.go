package group

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// storeGroup writes the group's record; done runs with the mutex held.
func (g *group) storeGroup(fx *effects, done func(*effects, error)) {
	g.stored = true // even a write that fails may have reached the log
	g.append(fx, append(g.consumerTombstones(), g.groupRecord()), func(fx *effects, err error) {
		if err == nil {
			g.leftover = nil
		}
		done(fx, err)
	})
}

// deleteError is what a client is told when tombstones could not be stored.
func deleteError(err error) *kerr.Error {
	if ke := kafkaError(err); ke == kerr.RequestTimedOut {
		return kerr.CoordinatorNotAvailable
	}
	return storeError(err)
}

// storeError is what a client is told when the group's record could not be
// stored: find the coordinator again, join again, or that it is hopeless.
func storeError(err error) *kerr.Error {
	switch ke := kafkaError(err); ke {
	case nil:
		return nil
	case kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.KafkaStorageError:
		return kerr.NotCoordinator
	case kerr.RequestTimedOut:
		return kerr.RebalanceInProgress
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidFetchSize:
		return kerr.UnknownServerError
	default:
		return ke
	}
}

// commitError is what a client is told when its offsets could not be stored.
func commitError(err error) *kerr.Error {
	switch ke := kafkaError(err); ke {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidFetchSize:
		return kerr.InvalidCommitOffsetSize
	case kerr.RequestTimedOut:
		return ke
	default:
		return storeError(err)
	}
}

// inLogAllTheSame says that the records were appended, though their writer heard of
// an error: only their replication was not waited for.
func inLogAllTheSame(err error) bool {
	ke := kafkaError(err)
	return ke == kerr.RequestTimedOut || ke == kerr.NotEnoughReplicasAfterAppend
}

func kafkaError(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return ke
	}
	return kerr.UnknownServerError
}
