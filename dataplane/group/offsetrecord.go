package group

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// noExpiry is the expiry time of an offset without a retention of its own.
const noExpiry = -1

// offset is a committed offset. There may be millions: what few of them have is in
// the note.
type offset struct {
	offset    int64
	committed int64  // ms since 1970
	seq       uint64 // its place among the group's writes, see group.seq
	note      *note
	epoch     int32 // of the leader at the time of the record before; -1 unknown
	partition int32
}

// note is what a commit has beside its offset.
type note struct {
	metadata string
	expires  int64 // ms since 1970 or noExpiry
}

// annotate gives the offset what its commit had besides; the text must not alias a
// request.
func (o *offset) annotate(metadata string, expires int64) {
	o.note = nil
	if metadata != "" || expires != noExpiry {
		o.note = &note{metadata, expires}
	}
}

func (o *offset) metadata() string {
	if o.note == nil {
		return ""
	}
	return o.note.metadata
}

func (o *offset) expires() int64 {
	if o.note == nil {
		return noExpiry
	}
	return o.note.expires
}

func offsetRecordKey(group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: offsetKeyV1, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(nil)
}

func offsetRecord(group, topic string, o *offset) coordinator.Record {
	v := kmsg.OffsetCommitValue{
		Version:         offsetValue,
		Offset:          o.offset,
		LeaderEpoch:     o.epoch,
		Metadata:        o.metadata(),
		CommitTimestamp: o.committed,
	}
	if e := o.expires(); e != noExpiry {
		v.Version, v.ExpireTimestamp = offsetValueExpiring, e
	}
	return coordinator.Record{Timestamp: o.committed, Key: offsetRecordKey(group, topic, o.partition), Value: v.AppendTo(nil)}
}

// offsetEntry is a decoded offset record; all of it aliases the record but the
// offset's note.
type offsetEntry struct {
	group, topic []byte
	tombstone    bool
	offset
}

var errMalformed = errors.New("malformed offset record")

// isOffsetKey says whether the key is of an offset commit.
func isOffsetKey(key []byte) bool {
	return len(key) >= 2 && binary.BigEndian.Uint16(key) <= offsetKeyV1
}

// decodeOffset reads an offset record by hand: a coordinator that starts reads
// millions, and the generated code makes strings of what is mostly known.
func decodeOffset(key, value []byte) (e offsetEntry, err error) {
	k := cursor{b: key[2:]}
	e.group, e.topic = k.str(), k.str()
	e.partition = int32(k.num(4))
	if k.bad {
		return e, errMalformed
	}
	if value == nil {
		e.tombstone = true
		return e, nil
	}
	v := cursor{b: value}
	version := int16(v.num(2))
	e.offset.offset = int64(v.num(8))
	e.epoch = -1
	if version >= 3 {
		e.epoch = int32(v.num(4))
	}
	if version >= 4 { // flexible; another make's, which comes with the topic's id
		return decodeFlexibleOffset(e, value)
	}
	metadata := v.str()
	e.committed = int64(v.num(8))
	expires := int64(noExpiry)
	if version == offsetValueExpiring {
		expires = int64(v.num(8))
	}
	if v.bad || version < 0 {
		return e, errMalformed
	}
	if len(metadata) > 0 || expires != noExpiry {
		e.annotate(string(metadata), expires)
	}
	return e, nil
}

func decodeFlexibleOffset(e offsetEntry, value []byte) (offsetEntry, error) {
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		return e, err
	}
	e.committed = v.CommitTimestamp
	e.annotate(strings.Clone(v.Metadata), noExpiry)
	return e, nil
}

// cursor reads big-endian numbers and strings of an int16 length; bad stays set once
// something was missing.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b) {
		c.bad = true
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) num(size int) (n uint64) {
	for _, b := range c.take(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

func (c *cursor) str() []byte { return c.take(int(int16(c.num(2)))) }
