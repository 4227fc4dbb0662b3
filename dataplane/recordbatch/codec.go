package recordbatch

// Codec is a compression type as in the batch attributes.
type Codec int8

// The codecs. CodecProducer is the topic setting "producer": keep what came.
const (
	CodecProducer Codec = -1
	CodecNone     Codec = 0
	CodecGzip     Codec = 1
	CodecSnappy   Codec = 2
	CodecLZ4      Codec = 3
	CodecZstd     Codec = 4
)

// String is Kafka's name of the codec in topic settings.
func (c Codec) String() string {
	switch c {
	case CodecProducer:
		return "producer"
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	}
	return "unknown"
}

// DefaultLevel is the level at which a codec is used where no setting names one
// (KIP-390): 0 for those that have none.
func (c Codec) DefaultLevel() int {
	switch c {
	case CodecGzip:
		return -1
	case CodecLZ4:
		return 9
	case CodecZstd:
		return 3
	}
	return 0
}
