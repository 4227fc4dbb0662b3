package recordbatch

// Header is one record header.
type Header struct {
	Key   string
	Value []byte // nil is a null value
}

// Record is one record of a batch. Key and Value alias the batch or a buffer that
// is reused after the callback; nil is Kafka's null.
type Record struct {
	Offset    int64
	Timestamp int64 // ms since 1970
	Key       []byte
	Value     []byte
	Headers   []Header
}

// DefaultMaxDecompressed bounds what one batch may unfold to, in bytes.
const DefaultMaxDecompressed = 128 << 20

// Records calls fn for each record in order, decompressing if needed, at most
// DefaultMaxDecompressed bytes. The record and all it points to are valid only
// during the call. An error of fn ends the walk and is returned.
func Records(b Batch, fn func(Record) error) error { panic("unfinished") }

// BuildOptions say how Build makes a batch. The zero value is not useful: start
// from NoProducer().
type BuildOptions struct {
	Codec         Codec
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool // all records carry the largest timestamp
}

// NoProducer is a BuildOptions without producer id, leader epoch -1.
func NoProducer() BuildOptions {
	return BuildOptions{LeaderEpoch: NoLeaderEpoch, ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence}
}

// Build encodes recs as one batch with consecutive offsets from BaseOffset (the
// records' own Offset is ignored).
func Build(o BuildOptions, recs []Record) (Batch, error) { panic("unfinished") }
