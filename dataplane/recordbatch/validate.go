package recordbatch

import (
	"errors"
	"fmt"
	"math"

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
	// Recompress: the topic's compression.type is Codec, not "producer".
	Recompress bool
	Codec      Codec
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

// maxRecordErrors bounds the list in a reply; Kafka's message names ten.
const maxRecordErrors = 100

// InvalidError is a refused batch. It unwraps to the *kerr.Error for the wire.
type InvalidError struct {
	Kerr    *kerr.Error
	Message string
	Records []RecordError // for RecordErrors of a Produce reply; often empty
}

func (e *InvalidError) Error() string { return e.Kerr.Message + ": " + e.Message }

// Unwrap gives the wire error.
func (e *InvalidError) Unwrap() error { return e.Kerr }

func refuse(k *kerr.Error, format string, args ...any) error {
	return &InvalidError{Kerr: k, Message: fmt.Sprintf(format, args...)}
}

// Validate makes the checks of a produced batch in Kafka's order and sets, in
// place, the largest timestamp (and for LogAppendTime its flag). It does not
// allocate on success. Errors are *InvalidError.
//
// Records are always walked to the end, compressed ones too: a batch that nobody
// can unfold would block every consumer of the partition for ever.
func Validate(b Batch, o ValidateOptions) (Info, error) {
	if err := checkHeader(b, o); err != nil {
		return Info{}, err
	}
	info, err := checkRecords(b, o)
	if err != nil {
		return Info{}, err
	}
	info.Records = b.Count()
	if o.LogAppendTime {
		info.MaxTimestamp = o.NowMs
	}
	if !b.IsControl() || o.LogAppendTime {
		b.SetMaxTimestamp(info.MaxTimestamp, o.LogAppendTime)
	}
	if o.Recompress && b.Codec() != o.Codec {
		info.Rewrite = true
	}
	return info, nil
}

func checkHeader(b Batch, o ValidateOptions) error {
	if len(b) < HeaderSize || b.Length() != len(b) {
		return refuse(kerr.CorruptMessage, "batch of %d bytes has a wrong length", len(b))
	}
	codec := b.Codec()
	switch {
	case b.Magic() != Magic:
		return refuse(kerr.InvalidRecord, "batch has format version %d, not 2", b.Magic())
	case codec > CodecZstd, codec == CodecZstd && o.ProduceVersion > 0 && o.ProduceVersion < 7:
		return refuse(kerr.UnsupportedCompressionType, "codec %d in a produce request of version %d", codec, o.ProduceVersion)
	case b.BaseOffset() != 0 && !o.Coordinator:
		return refuse(kerr.InvalidRecord, "base offset is %d, must be 0", b.BaseOffset())
	case o.MaxMessageBytes > 0 && len(b) > o.MaxMessageBytes:
		return refuse(kerr.MessageTooLarge, "batch of %d bytes exceeds max.message.bytes %d", len(b), o.MaxMessageBytes)
	case b.CRC() != b.ComputeCRC():
		return refuse(kerr.CorruptMessage, "checksum is %08x, computed %08x", b.CRC(), b.ComputeCRC())
	case b.LastOffsetDelta() < 0 || b.Count() <= 0 || int64(b.LastOffsetDelta())+1 != int64(b.Count()):
		return refuse(kerr.InvalidRecord, "%d records with last offset delta %d", b.Count(), b.LastOffsetDelta())
	case b.IsControl() && !o.Coordinator:
		return refuse(kerr.InvalidRecord, "clients may not write control batches")
	case b.HasProducerID() && b.BaseSequence() < 0 && !o.Coordinator:
		return refuse(kerr.InvalidRecord, "producer %d without a sequence number", b.ProducerID())
	}
	return nil
}

// checkRecords walks the records without keeping any.
func checkRecords(b Batch, o ValidateOptions) (Info, error) {
	c := cursor{buf: b.Payload()}
	if codec := b.Codec(); codec != CodecNone {
		d, err := newDecoder(codec, b.Payload())
		if err != nil {
			return Info{}, refuse(kerr.InvalidRecord, "cannot decompress (%s): %v", codec, err)
		}
		defer d.release()
		limit := o.MaxDecompressed
		if limit <= 0 {
			limit = DefaultMaxDecompressed
		}
		c = cursor{r: d, left: limit}
	}
	check := recordCheck{o: o, first: b.FirstTimestamp(), logAppend: b.IsLogAppendTime(), info: Info{MaxTimestamp: NoTimestamp}}
	count := b.Count()
	for i := int32(0); i < count; i++ {
		h := c.record(nil)
		if c.err != nil {
			return Info{}, unreadable(c.err, i, count)
		}
		check.record(i, h)
	}
	if c.more() || c.err != nil {
		if c.err == nil {
			c.err = errRemaining
		}
		return Info{}, unreadable(c.err, count, count)
	}
	return check.info, check.error()
}

func unreadable(err error, i, count int32) error {
	if errors.Is(err, errTooLarge) {
		return refuse(kerr.InvalidRecord, "%v", err)
	}
	return refuse(kerr.InvalidRecord, "record %d of %d is unreadable: %v", i, count, err)
}

// recordCheck collects the verdicts on the records of one batch.
type recordCheck struct {
	o         ValidateOptions
	first     int64
	logAppend bool
	info      Info
	bad       []RecordError
	badTime   bool
}

func (k *recordCheck) record(i int32, h head) {
	if h.offsetDelta != i {
		k.info.Rewrite = true
	}
	ts := k.first + h.timestampDelta
	if ts > k.info.MaxTimestamp {
		k.info.MaxTimestamp = ts
	}
	if k.o.Compacted && h.nullKey {
		k.add(i, "a compacted topic needs records with a key")
		return
	}
	switch {
	case k.o.Coordinator:
	case k.logAppend:
		k.badTime = true
		k.add(i, "producers may not set LogAppendTime")
	case k.o.LogAppendTime || ts == NoTimestamp:
	case k.o.BeforeMaxMs > 0 && ts < saturatingSub(k.o.NowMs, k.o.BeforeMaxMs),
		k.o.AfterMaxMs > 0 && ts > saturatingAdd(k.o.NowMs, k.o.AfterMaxMs):
		k.badTime = true
		k.add(i, "timestamp is too far from the broker's time")
	}
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func saturatingSub(a, b int64) int64 {
	if a < math.MinInt64+b {
		return math.MinInt64
	}
	return a - b
}

func (k *recordCheck) add(i int32, msg string) {
	if len(k.bad) < maxRecordErrors {
		k.bad = append(k.bad, RecordError{Index: i, Message: msg})
	}
}

func (k *recordCheck) error() error {
	if len(k.bad) == 0 {
		return nil
	}
	e := &InvalidError{Kerr: kerr.InvalidRecord, Message: fmt.Sprintf("record %d: %s", k.bad[0].Index, k.bad[0].Message), Records: k.bad}
	if k.badTime {
		e.Kerr = kerr.InvalidTimestamp
	}
	return e
}

// Prepare takes the records field of a produce request (version 3 or later) for one
// partition: exactly one batch, validated, rewritten where Validate says so. The
// result aliases records unless it had to be rewritten. An incomplete batch behind
// the first is ignored, as Kafka does.
func Prepare(records []byte, o ValidateOptions) (Batch, Info, error) {
	b, rest, err := Next(records)
	switch {
	case errors.Is(err, ErrMagic):
		return nil, Info{}, refuse(kerr.InvalidRecord, "only batches of format version 2 are taken")
	case errors.Is(err, ErrCorrupt):
		return nil, Info{}, refuse(kerr.CorruptMessage, "%v", err)
	case err != nil || b == nil:
		return nil, Info{}, refuse(kerr.InvalidRecord, "a produce request must have exactly one batch a partition")
	}
	if _, _, err := Next(rest); len(rest) > 0 && !errors.Is(err, ErrShort) {
		return nil, Info{}, refuse(kerr.InvalidRecord, "a produce request must have exactly one batch a partition")
	}
	info, err := Validate(b, o)
	if err != nil || !info.Rewrite {
		return b, info, err
	}
	codec := b.Codec()
	if o.Recompress {
		codec = o.Codec
	}
	if b, err = Rewrite(b, codec); err != nil {
		return nil, Info{}, refuse(kerr.InvalidRecord, "rewrite: %v", err)
	}
	if o.MaxMessageBytes > 0 && len(b) > o.MaxMessageBytes {
		return nil, Info{}, refuse(kerr.MessageTooLarge, "batch of %d bytes after recompression exceeds max.message.bytes %d", len(b), o.MaxMessageBytes)
	}
	return b, info, nil
}

// Rewrite re-encodes the records with consecutive offsets and codec c; the other
// header fields are kept.
func Rewrite(b Batch, c Codec) (Batch, error) {
	var body []byte
	var n int32
	first := b.FirstTimestamp()
	err := Records(b, func(r Record) error {
		delta := r.Timestamp - first
		if b.IsLogAppendTime() {
			delta = 0
		}
		body = appendRecord(body, &r, delta, n)
		n++
		return nil
	})
	if err != nil {
		return nil, err
	}
	o := BuildOptions{
		Codec: c, BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(), ProducerID: b.ProducerID(),
		ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(), Transactional: b.IsTransactional(),
		Control: b.IsControl(), LogAppendTime: b.IsLogAppendTime(),
	}
	return assemble(o, n, first, b.MaxTimestamp(), body)
}
