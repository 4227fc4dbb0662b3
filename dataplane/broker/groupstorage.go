package broker

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/group"
	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
)

// groupStorage is the group coordinator's log: the partitions of
// __consumer_offsets that this broker leads.
type groupStorage struct {
	partitions *partition.Manager
	metadata   *metadata.Cache
	timeout    time.Duration // offsets.commit.timeout.ms
}

func offsetsPartition(p int32) partition.TopicPartition {
	return partition.TopicPartition{Topic: protocol.OffsetsTopic, Partition: p}
}

func (s *groupStorage) Append(p int32, recs []group.Record, done func(error)) {
	now := time.Now().UnixMilli()
	out := make([]recordbatch.Record, len(recs))
	for i, r := range recs {
		out[i] = recordbatch.Record{Offset: int64(i), Timestamp: now, Key: r.Key, Value: r.Value}
	}
	b, err := recordbatch.Build(recordbatch.NoProducer(), out)
	if err != nil {
		done(err)
		return
	}
	s.partitions.Append(partition.AppendRequest{
		Acks: -1, Timeout: s.timeout,
		Entries: []partition.AppendEntry{{TP: offsetsPartition(p), Records: b, Internal: true}},
	}, func(r []partition.AppendResult) { done(r[0].Err) })
}

// readChunk bounds what is read from the log at once while a partition loads.
const readChunk = 1 << 20

func (s *groupStorage) Read(p int32, fn func(group.Logged) error) error {
	part := s.partitions.Partition(offsetsPartition(p))
	if part == nil {
		return kerr.NotLeaderForPartition
	}
	log := part.Log()
	end := log.EndOffset()
	buf := make([]byte, 0, readChunk)
	for at := log.StartOffset(); at < end; {
		slice, err := part.Read(at, readChunk, end, true)
		if err != nil {
			return err
		}
		if slice.Len == 0 {
			return nil
		}
		buf, at, err = readSlice(&slice, buf, at, fn)
		if err != nil {
			return fmt.Errorf("reading %s at %d: %w", offsetsPartition(p), at, err)
		}
	}
	return nil
}

// readSlice gives everything from the offset at on to fn, closes the slice and
// returns where the next thing begins.
func readSlice(slice *commitlog.Slice, buf []byte, at int64, fn func(group.Logged) error) ([]byte, int64, error) {
	defer slice.Close()
	if cap(buf) < slice.Len {
		buf = make([]byte, slice.Len)
	}
	buf = buf[:slice.Len]
	if _, err := slice.ReadInto(buf); err != nil {
		return buf, at, err
	}
	next := at
	for b, err := range recordbatch.Split(buf) {
		if err != nil {
			return buf, next, err
		}
		next = b.LastOffset() + 1
		producer := int64(group.NoTransaction)
		if b.IsTransactional() {
			producer = b.ProducerID()
		}
		err := recordbatch.Records(b, func(r recordbatch.Record) error {
			end := group.NotAnEnd
			if b.IsControl() {
				end = transactionEnd(r.Key)
			}
			if r.Offset < at || b.IsControl() && end == group.NotAnEnd {
				return nil
			}
			return fn(group.Logged{Record: r, Producer: producer, End: end})
		})
		if err != nil {
			return buf, next, err
		}
	}
	return buf, next, nil
}

// transactionEnd reads the key of a control record: int16 version, int16 type.
func transactionEnd(key []byte) group.TransactionEnd {
	if len(key) >= 4 {
		switch binary.BigEndian.Uint16(key[2:]) {
		case 0:
			return group.Aborted
		case 1:
			return group.Committed
		}
	}
	return group.NotAnEnd // of another kind
}

func (s *groupStorage) Partitions() int32 {
	t := s.metadata.Image().Topic(protocol.OffsetsTopic)
	if t == nil {
		return 0
	}
	return int32(t.Len())
}
