package protocol

import (
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// File is what a range of record bytes is read from. If it also has
// `Fd() uintptr`, plaintext connections send the range by sendfile(2).
type File interface {
	io.ReaderAt
}

// Chunk is one piece of a response: either bytes or a range of a file.
type Chunk struct {
	Bytes []byte
	File  File
	Pos   int64
	Len   int // of the range; not used with Bytes
}

// Size is the chunk's length on the wire.
func (c Chunk) Size() int {
	if c.File != nil {
		return c.Len
	}
	return len(c.Bytes)
}

// FetchResponse is the Fetch reply of the hot path: what kmsg.FetchResponse is,
// with record data as ranges of files.
type FetchResponse struct {
	ThrottleMillis int32
	ErrorCode      int16
	SessionID      int32
	Topics         []FetchTopic
	// Brokers are the endpoints of current leaders (v16+, KIP-951).
	Brokers []kmsg.FetchResponseBroker
}

// FetchTopic is one topic of a FetchResponse.
type FetchTopic struct {
	Topic      string
	TopicID    UUID
	Partitions []FetchPartition
}

// FetchPartition is one partition of a FetchResponse. Make it with
// NewFetchPartition: the zero value of some fields has a meaning.
type FetchPartition struct {
	Partition        int32
	ErrorCode        int16
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	// DivergingEpoch and its end offset (v12+); -1, -1 if none.
	DivergingEpoch     int32
	DivergingEndOffset int64
	// LeaderID and LeaderEpoch tell the current leader (v12+); -1, -1 if none.
	LeaderID    int32
	LeaderEpoch int32
	// AbortedTransactions is nil for read_uncommitted, never for read_committed.
	AbortedTransactions  []kmsg.FetchResponseTopicPartitionAbortedTransaction
	PreferredReadReplica int32
	// Records: either a range of a file or bytes; neither means empty.
	Records Chunk
}

// NewFetchPartition has Kafka's default in every field.
func NewFetchPartition(partition int32) FetchPartition {
	return FetchPartition{
		Partition: partition, LastStableOffset: -1, LogStartOffset: -1, DivergingEpoch: -1, DivergingEndOffset: -1,
		LeaderID: -1, LeaderEpoch: -1, PreferredReadReplica: -1,
	}
}

// RecordBytes is the sum of all record data.
func (r *FetchResponse) RecordBytes() int64 {
	var n int64
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			n += int64(r.Topics[i].Partitions[j].Records.Size())
		}
	}
	return n
}

// AppendChunks encodes the response's body at the given version (4 to 17) onto
// dst. Everything but record data is appended to buf, which the chunks alias;
// buf is returned for its capacity. What already stands in buf leads the first
// chunk.
func (r *FetchResponse) AppendChunks(dst []Chunk, buf []byte, version int16) ([]Chunk, []byte) {
	return nil, nil
}

// Size is the length of the encoded body at the given version.
func (r *FetchResponse) Size(version int16) int { return 0 }
