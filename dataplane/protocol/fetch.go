package protocol

import (
	"encoding/binary"
	"io"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// File is what a range of record bytes is read from. If it also has
// `Fd() (fd uintptr, ok bool)` (as vfs.File) or `Fd() uintptr` (as os.File),
// plaintext connections send the range by sendfile(2).
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
	// Chunks must not alias a buffer that append moves later on.
	if need := r.metaSize(version); cap(buf)-len(buf) < need {
		grown := make([]byte, len(buf), len(buf)+need)
		copy(grown, buf)
		buf = grown
	}
	e := fetchEncoder{buf: buf, version: version, flexible: version >= 12, chunks: dst}
	e.response(r)
	e.cut()
	return e.chunks, e.buf
}

// Size is the length of the encoded body at the given version.
func (r *FetchResponse) Size(version int16) int {
	return r.metaSize(version) + int(r.RecordBytes())
}

// metaSize encodes without storing: one code path decides the layout.
func (r *FetchResponse) metaSize(version int16) int {
	e := fetchEncoder{version: version, flexible: version >= 12, counting: true}
	e.response(r)
	return e.n
}

// fetchEncoder writes a Fetch response, or only counts it.
type fetchEncoder struct {
	buf      []byte
	start    int // of the bytes not yet in a chunk
	chunks   []Chunk
	version  int16
	flexible bool
	counting bool
	n        int
}

func (e *fetchEncoder) response(r *FetchResponse) {
	e.i32(r.ThrottleMillis)
	if e.version >= 7 {
		e.i16(r.ErrorCode)
		e.i32(r.SessionID)
	}
	e.arrayLen(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		if e.version >= 13 {
			e.raw(t.TopicID[:])
		} else {
			e.str(t.Topic)
		}
		e.arrayLen(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		e.noTags()
	}
	if !e.flexible {
		return
	}
	// Kafka's schema gives node endpoints to versions 16 and up only.
	if e.version < 16 || len(r.Brokers) == 0 {
		e.noTags()
		return
	}
	size := fetchEncoder{version: e.version, flexible: true, counting: true}
	size.brokers(r.Brokers)
	e.uvarint(1)
	e.uvarint(0)
	e.uvarint(uint32(size.n))
	e.brokers(r.Brokers)
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.i32(p.Partition)
	e.i16(p.ErrorCode)
	e.i64(p.HighWatermark)
	e.i64(p.LastStableOffset)
	if e.version >= 5 {
		e.i64(p.LogStartOffset)
	}
	if p.AbortedTransactions == nil {
		e.nullArray()
	} else {
		e.arrayLen(len(p.AbortedTransactions))
		for i := range p.AbortedTransactions {
			e.i64(p.AbortedTransactions[i].ProducerID)
			e.i64(p.AbortedTransactions[i].FirstOffset)
			e.noTags()
		}
	}
	if e.version >= 11 {
		e.i32(p.PreferredReadReplica)
	}
	e.records(p.Records)
	if !e.flexible {
		return
	}
	diverging := p.DivergingEpoch != -1 || p.DivergingEndOffset != -1
	leader := p.LeaderID != -1 || p.LeaderEpoch != -1
	n := uint32(0)
	if diverging {
		n++
	}
	if leader {
		n++
	}
	e.uvarint(n)
	if diverging {
		e.uvarint(0)
		e.uvarint(4 + 8 + 1)
		e.i32(p.DivergingEpoch)
		e.i64(p.DivergingEndOffset)
		e.noTags()
	}
	if leader {
		e.uvarint(1)
		e.uvarint(4 + 4 + 1)
		e.i32(p.LeaderID)
		e.i32(p.LeaderEpoch)
		e.noTags()
	}
}

// records writes the length of the record data, which is never null, and ends
// the chunk before it.
func (e *fetchEncoder) records(c Chunk) {
	n := c.Size()
	if e.flexible {
		e.uvarint(uint32(n) + 1)
	} else {
		e.i32(int32(n))
	}
	if n == 0 || e.counting {
		return
	}
	e.cut()
	e.chunks = append(e.chunks, c)
}

// cut makes a chunk of the bytes written since the last one.
func (e *fetchEncoder) cut() {
	if len(e.buf) > e.start {
		e.chunks = append(e.chunks, Chunk{Bytes: e.buf[e.start:len(e.buf):len(e.buf)]})
		e.start = len(e.buf)
	}
}

func (e *fetchEncoder) brokers(bs []kmsg.FetchResponseBroker) {
	e.arrayLen(len(bs))
	for i := range bs {
		e.i32(bs[i].NodeID)
		e.str(bs[i].Host)
		e.i32(bs[i].Port)
		if bs[i].Rack == nil {
			e.uvarint(0)
		} else {
			e.str(*bs[i].Rack)
		}
		e.noTags()
	}
}

func (e *fetchEncoder) i16(v int16) {
	if e.counting {
		e.n += 2
		return
	}
	e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v))
}

func (e *fetchEncoder) i32(v int32) {
	if e.counting {
		e.n += 4
		return
	}
	e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v))
}

func (e *fetchEncoder) i64(v int64) {
	if e.counting {
		e.n += 8
		return
	}
	e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v))
}

func (e *fetchEncoder) uvarint(v uint32) {
	if e.counting {
		e.n += max(1, (bits.Len32(v)+6)/7)
		return
	}
	e.buf = binary.AppendUvarint(e.buf, uint64(v))
}

func (e *fetchEncoder) raw(b []byte) {
	if e.counting {
		e.n += len(b)
		return
	}
	e.buf = append(e.buf, b...)
}

func (e *fetchEncoder) str(s string) {
	if e.flexible {
		e.uvarint(uint32(len(s)) + 1)
	} else {
		e.i16(int16(len(s)))
	}
	if e.counting {
		e.n += len(s)
		return
	}
	e.buf = append(e.buf, s...)
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(uint32(n) + 1)
	} else {
		e.i32(int32(n))
	}
}

func (e *fetchEncoder) nullArray() {
	if e.flexible {
		e.uvarint(0)
	} else {
		e.i32(-1)
	}
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.uvarint(0)
	}
}
