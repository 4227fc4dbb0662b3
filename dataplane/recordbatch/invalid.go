package recordbatch

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// InvalidError is a refused batch. It unwraps to the *kerr.Error for the wire.
type InvalidError struct {
	Kerr    *kerr.Error
	Message string
	// Records are the bad records, the first maxRecordErrors of them, for the
	// RecordErrors of a Produce reply (KIP-467). Often empty: then the batch as a whole is at fault.
	Records []RecordError
}

// maxRecordErrors bounds the list of one batch: the smallest records have seven bytes, and
// must not cost the broker much more than that.
const maxRecordErrors = 100

func (e *InvalidError) Error() string { return e.Kerr.Message + ": " + e.Message }

// Unwrap gives the wire error.
func (e *InvalidError) Unwrap() error { return e.Kerr }

func refuse(k *kerr.Error, format string, args ...any) error {
	return &InvalidError{Kerr: k, Message: fmt.Sprintf(format, args...)}
}

// RecordError is one bad record of a refused batch.
type RecordError struct {
	Index int32 // place in the batch, from 0
	kind  fault
	ms    int64 // the record's timestamp
}

type fault uint8

const (
	noKey fault = iota
	brokerTime
	tooOld
	tooNew
)

// Message says what is wrong.
func (e RecordError) Message() string {
	switch e.kind {
	case noKey:
		return "a compacted topic needs records with a key"
	case brokerTime:
		return "producers may not set LogAppendTime"
	case tooOld:
		return fmt.Sprintf("timestamp %d is further in the past than message.timestamp.before.max.ms allows", e.ms)
	}
	return fmt.Sprintf("timestamp %d is further in the future than message.timestamp.after.max.ms allows", e.ms)
}
