package recordbatch

import (
	"github.com/twmb/franz-go/pkg/kerr"
)

// ValidateOptions are the topic's and the request's side of the produce checks.
type ValidateOptions struct {
	// ProduceVersion is the version of the request; zstd needs 7. 0 means "internal", no version rule.
	ProduceVersion int16
	// MaxMessageBytes is max.message.bytes; 0 means no limit.
	MaxMessageBytes int
	// Compacted: records must have a key.
	Compacted bool
	// LogAppendTime is message.timestamp.type=LogAppendTime: the batch is stamped with NowMs.
	LogAppendTime bool
	// NowMs is the wall clock, ms since 1970.
	NowMs int64
	// BeforeMaxMs and AfterMaxMs bound a CreateTime around now, in ms;
	// 0 or negative means no bound.
	BeforeMaxMs int64
	AfterMaxMs  int64
	// Codec is the topic's compression.type; CodecProducer keeps what came.
	Codec Codec
	// Coordinator allows control batches and any base offset (internal appends).
	Coordinator bool
	// MaxDecompressed bounds what the batch may unfold to, bytes; 0 = DefaultMaxDecompressed.
	MaxDecompressed int64
}

// Info is what Validate learnt.
type Info struct {
	Records      int32
	MaxTimestamp int64 // as stamped, ms since 1970
	// Rewrite: the batch is sound but may not be stored as it is: inner offsets are
	// not consecutive, or the topic wants another codec. See Rewrite.
	Rewrite bool
}

// RecordError is one bad record of a refused batch.
type RecordError struct {
	Index   int32 // place in the batch, from 0
	Message string
}

// InvalidError is a refused batch. It unwraps to the *kerr.Error for the wire.
type InvalidError struct {
	Kerr    *kerr.Error
	Message string
	Records []RecordError // for RecordErrors of a Produce reply; often empty
}

func (e *InvalidError) Error() string { return e.Kerr.Message + ": " + e.Message }

// Unwrap gives the wire error.
func (e *InvalidError) Unwrap() error { return e.Kerr }

// Validate makes the checks of a produced batch in Kafka's order and sets, in
// place, the largest timestamp (and for LogAppendTime its flag). It does not
// allocate on success. Errors are *InvalidError.
func Validate(b Batch, o ValidateOptions) (Info, error) { panic("unfinished") }

// Prepare takes the records field of a produce request for one partition: exactly
// one batch, validated, rewritten where Validate says so. The result aliases
// records unless it had to be rewritten.
func Prepare(records []byte, o ValidateOptions) (Batch, Info, error) { panic("unfinished") }

// Rewrite re-encodes the records with consecutive offsets and codec c; header
// fields are kept.
func Rewrite(b Batch, c Codec) (Batch, error) { panic("unfinished") }
