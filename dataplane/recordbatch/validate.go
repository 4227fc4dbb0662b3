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
	// BoundTimes: a CreateTime may be at most BeforeMaxMs older and AfterMaxMs
	// newer than NowMs (message.timestamp.before.max.ms and after.max.ms, KIP-937), both at
	// least 0. A record without a timestamp (-1) is exempt.
	BoundTimes  bool
	BeforeMaxMs int64
	AfterMaxMs  int64
	// Recompress: the topic's compression.type is Codec, not "producer". Level is
	// the topic's level of that codec (KIP-390).
	Recompress bool
	Codec      Codec
	Level      int
	// Coordinator allows control batches and any base offset (internal appends).
	Coordinator bool
	// MaxDecompressed bounds what the batch may unfold to, in bytes; 0 means
	// DefaultMaxDecompressed, or 16 times MaxMessageBytes if that is more.
	MaxDecompressed int64
}

// DefaultMaxDecompressed is what any batch may unfold to, in bytes.
const DefaultMaxDecompressed = 128 << 20

// maxRatio is what every topic's largest batch may unfold to, through its length.
const maxRatio = 16

func (o *ValidateOptions) unfoldLimit() int64 {
	if o.MaxDecompressed > 0 {
		return o.MaxDecompressed
	}
	return max(DefaultMaxDecompressed, maxRatio*int64(o.MaxMessageBytes))
}

// recodes tells whether the topic wants another codec than the batch has. Markers stay
// as they are.
func (o *ValidateOptions) recodes(b Batch) bool {
	return o.Recompress && b.Codec() != o.Codec && !b.IsControl()
}

// Info is what Validate learnt.
type Info struct {
	Records      int32
	MaxTimestamp int64 // as stamped, ms since 1970
	// Unfolded is what a compressed batch unfolded to, in bytes; 0 for others.
	Unfolded int64
	// Rewrite: the batch is sound but may not be stored as it is: inner offsets are
	// not consecutive, or the topic wants another codec. Prepare does it.
	Rewrite bool

	gaps bool    // inner offsets are not consecutive
	buf  *[]byte // of a batch that Prepare rewrote
}

// Validate makes the checks of a produced batch in Kafka's order and sets, in
// place, the largest timestamp (and for LogAppendTime its flag). It does not
// allocate on success. Errors are *InvalidError.
//
// Records are always walked to the end, compressed ones too: a batch that nobody
// can unfold would block every consumer of the partition for ever.
func Validate(b Batch, o ValidateOptions) (Info, error) {
	if err := checkHeader(b, &o); err != nil {
		return Info{}, err
	}
	if b.Codec() == CodecNone {
		return checkRecords(b, &o, nil, 0, nil)
	}
	use, err := b.decoderUse()
	if err != nil {
		return Info{}, unreadable(b, err)
	}
	var info Info
	err = inProduceLane(use, func(limit int64) error {
		info, err = unfold(b, &o, use, limit, nil)
		return err
	})
	return info, err
}

func checkHeader(b Batch, o *ValidateOptions) error {
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
	case b.HasDeleteHorizon():
		return refuse(kerr.InvalidRecord, "only the log cleaner sets a delete horizon")
	case b.Attributes()&^attrKnown != 0:
		return refuse(kerr.InvalidRecord, "unknown attributes %#04x", uint16(b.Attributes()&^attrKnown))
	case b.HasProducerID() && b.BaseSequence() < 0 && !o.Coordinator:
		return refuse(kerr.InvalidRecord, "producer %d without a sequence number", b.ProducerID())
	}
	return nil
}

// unfold checks the records, and copies what a compressed batch unfolds to into e if that is
// not nil. The caller holds a place for use. errLong means that it unfolds to more than limit.
func unfold(b Batch, o *ValidateOptions, use, limit int64, e *encoder) (Info, error) {
	if b.Codec() == CodecNone {
		return checkRecords(b, o, nil, 0, nil)
	}
	d, err := newDecoder(b.Codec(), b.Payload(), use)
	if err != nil {
		return Info{}, unreadable(b, err)
	}
	defer d.release()
	return checkRecords(b, o, d, limit, e)
}

// checkRecords walks the records without keeping any, and stamps the batch.
func checkRecords(b Batch, o *ValidateOptions, d *decoder, limit int64, e *encoder) (Info, error) {
	c := cursor{buf: b.Payload()}
	if d != nil {
		c = cursor{d: d, copy: e, left: limit, over: errLong}
		if most := o.unfoldLimit(); most <= limit {
			c.left, c.over = most, errTooLarge
		}
		limit = c.left
	}
	check := recordCheck{o: *o, first: b.FirstTimestamp(), logAppend: b.IsLogAppendTime(), info: Info{Records: b.Count(), MaxTimestamp: NoTimestamp}}
	for i := int32(0); i < check.info.Records; i++ {
		h := c.record()
		if c.err != nil {
			return Info{}, unreadableAt(b, c.err, i)
		}
		check.record(i, h)
	}
	if c.more() {
		return Info{}, unreadable(b, errRemaining)
	}
	if c.err != nil {
		return Info{}, unreadable(b, c.err)
	}
	if err := check.error(); err != nil {
		return Info{}, err
	}
	info := check.info
	if d != nil {
		info.Unfolded = limit - c.left
	}
	if o.LogAppendTime {
		info.MaxTimestamp = o.NowMs
	}
	b.SetMaxTimestamp(info.MaxTimestamp, o.LogAppendTime)
	info.Rewrite = info.gaps || o.recodes(b)
	return info, nil
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
		k.info.gaps = true
	}
	ts := k.first + h.timestampDelta
	if ts > k.info.MaxTimestamp {
		k.info.MaxTimestamp = ts
	}
	if k.o.Compacted && h.nullKey {
		k.add(RecordError{Index: i, kind: noKey})
		return
	}
	switch {
	case k.o.Coordinator:
	case k.logAppend:
		k.badTime = true
		k.add(RecordError{Index: i, kind: brokerTime})
	case k.o.LogAppendTime || !k.o.BoundTimes || ts == NoTimestamp:
	case ts < saturatingSub(k.o.NowMs, k.o.BeforeMaxMs):
		k.badTime = true
		k.add(RecordError{Index: i, kind: tooOld, ms: ts})
	case ts > saturatingAdd(k.o.NowMs, k.o.AfterMaxMs):
		k.badTime = true
		k.add(RecordError{Index: i, kind: tooNew, ms: ts})
	}
}

func (k *recordCheck) add(e RecordError) {
	if len(k.bad) < maxRecordErrors {
		k.bad = append(k.bad, e)
	}
}

func (k *recordCheck) error() error {
	if len(k.bad) == 0 {
		return nil
	}
	e := &InvalidError{Kerr: kerr.InvalidRecord, Message: fmt.Sprintf("record %d: %s", k.bad[0].Index, k.bad[0].Message()), Records: k.bad}
	if k.badTime {
		e.Kerr = kerr.InvalidTimestamp
	}
	return e
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

func unreadable(b Batch, err error) error {
	switch {
	case errors.Is(err, errLong):
		return err
	case errors.Is(err, errTooLarge):
		// A producer that is told so splits the batch, which helps.
		return refuse(kerr.MessageTooLarge, "batch of %d bytes (%s): %v", len(b), b.Codec(), err)
	case errors.Is(err, errOutput):
		return refuse(kerr.MessageTooLarge, "batch of %d bytes, compressed as the topic asks: %v of max.message.bytes", len(b), err)
	}
	return refuse(kerr.InvalidRecord, "batch (%s) is unreadable: %v", b.Codec(), err)
}

func unreadableAt(b Batch, err error, i int32) error {
	if errors.Is(err, errTooLarge) || errors.Is(err, errOutput) || errors.Is(err, errLong) {
		return unreadable(b, err)
	}
	return refuse(kerr.InvalidRecord, "record %d of %d (%s) is unreadable: %v", i, b.Count(), b.Codec(), err)
}
