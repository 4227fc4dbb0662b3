package txn

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// storeError is what a client is told when the record could not be stored: try again, or
// find the coordinator first, or that it is hopeless.
func storeError(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		return kerr.UnknownServerError
	}
	switch ke {
	case kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.KafkaStorageError:
		return kerr.NotCoordinator
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidFetchSize:
		return kerr.UnknownServerError
	}
	return ke
}

// older is the error as a client knows it that was made before PRODUCER_FENCED (KIP-588).
func older(err *kerr.Error, version, knownFrom int16) *kerr.Error {
	if err == kerr.ProducerFenced && version < knownFrom {
		return kerr.InvalidProducerEpoch
	}
	return err
}

// code is the wire code of an error that may be nil.
func code(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}
