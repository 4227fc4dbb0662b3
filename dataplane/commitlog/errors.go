package commitlog

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrOffsetMismatch means that batches for AppendFollower do not continue the log;
// it comes as an *OffsetMismatchError.
var ErrOffsetMismatch = errors.New("batches do not continue the log")

// ErrClosed means use after Close or Delete.
var ErrClosed = fmt.Errorf("log is closed: %w", kerr.KafkaStorageError)

// OffsetMismatchError tells which batch came instead of one at or after End. A
// follower whose log is empty and lies inside [First, Last] restarts at First
// (the leader's first batch may begin before its log start).
type OffsetMismatchError struct {
	End         int64 // the log's end offset
	First, Last int64 // of the refused batch
}

func (e *OffsetMismatchError) Error() string {
	return fmt.Sprintf("batch %d..%d does not continue a log that ends at %d", e.First, e.Last, e.End)
}

// Is matches ErrOffsetMismatch.
func (e *OffsetMismatchError) Is(target error) bool { return target == ErrOffsetMismatch }

// storageErr wraps a failed file operation as KAFKA_STORAGE_ERROR.
func storageErr(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w (%w)", op, path, err, kerr.KafkaStorageError)
}

func outOfRange(from, start, end int64) error {
	return fmt.Errorf("offset %d is not in %d..%d: %w", from, start, end, kerr.OffsetOutOfRange)
}
