// Package recordbatch reads, checks and edits Kafka's record batches of format
// version 2 (KIP-98) in place, in the buffer they arrived in. It copies nothing
// on the way from the socket to the log: offsets and leader epoch lie outside the
// checksum and are stamped where they stand.
package recordbatch

import (
	"hash/crc32"
)

// Layout of the batch header, offsets in bytes from the start of the batch.
const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offFirstTimestamp  = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57

	// HeaderSize is the length of a version 2 batch header in bytes.
	HeaderSize = 61
	// LogOverhead is what precedes the part that the length field counts: base
	// offset and the length field itself, 12 bytes.
	LogOverhead = 12
	// Magic is the only format version that is written.
	Magic = 2
)

// Values of "none" in header fields.
const (
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoTimestamp     int64 = -1
	NoLeaderEpoch   int32 = -1
)

// Attribute bits of a batch.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
	attrDeleteHorizon = 1 << 6
	attrKnown         = 1<<7 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole version 2 batch, aliasing the buffer that it lies in. Its
// accessors require what Next has checked: at least HeaderSize bytes.
type Batch []byte

// BaseOffset is the offset of the first record (also when that was compacted away).
func (b Batch) BaseOffset() int64 { return int64(be.Uint64(b[offBaseOffset:])) }

// Length is the batch's size in bytes, the 12 bytes of base offset and length included.
func (b Batch) Length() int { return int(int32(be.Uint32(b[offLength:]))) + LogOverhead }

// LeaderEpoch is the epoch of the leader that appended the batch.
func (b Batch) LeaderEpoch() int32 { return int32(be.Uint32(b[offLeaderEpoch:])) }

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored CRC-32C of everything from the attributes on.
func (b Batch) CRC() uint32 { return be.Uint32(b[offCRC:]) }

// Attributes are the batch's flag bits.
func (b Batch) Attributes() int16 { return int16(be.Uint16(b[offAttributes:])) }

// Codec is how the records are compressed.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodecMask) }

// IsLogAppendTime tells that all records carry MaxTimestamp, set by the broker.
func (b Batch) IsLogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// IsTransactional tells that the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl tells that the batch carries a transaction marker instead of data.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon tells that FirstTimestamp is the delete horizon of KIP-534.
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// ClearDeleteHorizon makes FirstTimestamp no more than what the records' times are
// counted from; they stay what they were.
func (b Batch) ClearDeleteHorizon() {
	be.PutUint16(b[offAttributes:], uint16(b.Attributes()&^attrDeleteHorizon))
	b.resetCRC()
}

// LastOffsetDelta is LastOffset - BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return int32(be.Uint32(b[offLastOffsetDelta:])) }

// LastOffset is the offset of the last record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the last record.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// FirstTimestamp is the base that record timestamps are relative to, ms since 1970.
func (b Batch) FirstTimestamp() int64 { return int64(be.Uint64(b[offFirstTimestamp:])) }

// MaxTimestamp is the largest timestamp in the batch, ms since 1970.
func (b Batch) MaxTimestamp() int64 { return int64(be.Uint64(b[offMaxTimestamp:])) }

// ProducerID is the idempotent producer, or NoProducerID.
func (b Batch) ProducerID() int64 { return int64(be.Uint64(b[offProducerID:])) }

// ProducerEpoch is the producer's epoch, or NoProducerEpoch.
func (b Batch) ProducerEpoch() int16 { return int16(be.Uint16(b[offProducerEpoch:])) }

// BaseSequence is the sequence number of the first record, or NoSequence.
func (b Batch) BaseSequence() int32 { return int32(be.Uint32(b[offBaseSequence:])) }

// LastSequence is the sequence number of the last record; after 2^31-1 comes 0.
func (b Batch) LastSequence() int32 {
	first := b.BaseSequence()
	if first == NoSequence {
		return NoSequence
	}
	return AddSequence(first, b.LastOffsetDelta())
}

// AddSequence adds n to a sequence number, wrapping 2^31-1 to 0.
func AddSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & 0x7fffffff) }

// Count is the number of records that the header claims.
func (b Batch) Count() int32 { return int32(be.Uint32(b[offCount:])) }

// HasProducerID tells that the batch comes from an idempotent producer.
func (b Batch) HasProducerID() bool { return b.ProducerID() >= 0 }

// Payload is the records part, compressed as Codec says.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// ComputeCRC is the CRC-32C that the batch should carry.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[offAttributes:], castagnoli) }

// SetBaseOffset stamps the base offset; the checksum does not cover it.
func (b Batch) SetBaseOffset(o int64) { be.PutUint64(b[offBaseOffset:], uint64(o)) }

// SetLeaderEpoch stamps the leader epoch; the checksum does not cover it.
func (b Batch) SetLeaderEpoch(e int32) { be.PutUint32(b[offLeaderEpoch:], uint32(e)) }

// SetMaxTimestamp sets the largest timestamp and its kind, and the checksum anew
// if anything changed. With logAppendTime every record is read with that time.
func (b Batch) SetMaxTimestamp(ms int64, logAppendTime bool) {
	attr := b.Attributes() &^ attrLogAppendTime
	if logAppendTime {
		attr |= attrLogAppendTime
	}
	if attr == b.Attributes() && ms == b.MaxTimestamp() {
		return
	}
	be.PutUint16(b[offAttributes:], uint16(attr))
	be.PutUint64(b[offMaxTimestamp:], uint64(ms))
	b.resetCRC()
}

func (b Batch) resetCRC() { be.PutUint32(b[offCRC:], b.ComputeCRC()) }
