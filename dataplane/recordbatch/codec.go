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
