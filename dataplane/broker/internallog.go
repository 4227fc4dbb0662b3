package broker

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/recordbatch"
)

// internalLog is a coordinator's log: the partitions of an internal topic that this
// broker leads.
type internalLog struct {
	topic      string
	partitions *partition.Manager
	metadata   *metadata.Cache
	timeout    time.Duration // of an append: offsets.commit.timeout.ms or its like
}

func (s *internalLog) at(p int32) partition.TopicPartition {
	return partition.TopicPartition{Topic: s.topic, Partition: p}
}

// Append implements coordinator.Log. A batch of a transaction has no sequence: the
// coordinator writes in order and does not write again.
func (s *internalLog) Append(p int32, batch coordinator.Batch, done func(error)) {
	now := time.Now().UnixMilli()
	out := make([]recordbatch.Record, len(batch.Records))
	for i, r := range batch.Records {
		out[i] = recordbatch.Record{Offset: int64(i), Timestamp: now, Key: r.Key, Value: r.Value}
	}
	o := recordbatch.NoProducer()
	if batch.Producer.ID != coordinator.NoTransaction {
		o.ProducerID, o.ProducerEpoch, o.Transactional = batch.Producer.ID, batch.Producer.Epoch, true
	}
	b, err := recordbatch.Build(o, out)
	if err != nil {
		done(err)
		return
	}
	s.partitions.Append(partition.AppendRequest{
		Acks: -1, Timeout: s.timeout,
		Entries: []partition.AppendEntry{{TP: s.at(p), Records: b, Internal: true}},
	}, func(r []partition.AppendResult) { done(r[0].Err) })
}

// readChunk bounds what is read from the log at once while a partition loads.
const readChunk = 1 << 20

func (s *internalLog) Read(p int32, fn func(coordinator.Logged) error) error {
	part := s.partitions.Partition(s.at(p))
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
			return fmt.Errorf("reading %s at %d: %w", s.at(p), at, err)
		}
	}
	return nil
}

// readSlice gives everything from the offset at on to fn, closes the slice and
// returns where the next thing begins.
func readSlice(slice *commitlog.Slice, buf []byte, at int64, fn func(coordinator.Logged) error) ([]byte, int64, error) {
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
		if b.IsControl() {
			err = readMarker(b, fn)
		} else {
			producer := int64(coordinator.NoTransaction)
			if b.IsTransactional() {
				producer = b.ProducerID()
			}
			err = recordbatch.Records(b, func(r recordbatch.Record) error {
				if r.Offset < at {
					return nil
				}
				return fn(coordinator.Logged{Record: r, Producer: producer})
			})
		}
		if err != nil {
			return buf, next, err
		}
	}
	return buf, next, nil
}

// readMarker gives a control batch to fn if it ends a transaction.
func readMarker(b recordbatch.Batch, fn func(coordinator.Logged) error) error {
	committed, ok, err := commitlog.ReadMarker(b)
	if err != nil || !ok {
		return err
	}
	end := coordinator.Aborted
	if committed {
		end = coordinator.Committed
	}
	return fn(coordinator.Logged{Record: recordbatch.Record{Offset: b.BaseOffset()}, Producer: b.ProducerID(), End: end})
}

// Settle returns when all that the partition's log held at the time of the call is
// committed, or lost is closed: followers that are in sync fetch it within moments,
// others leave the ISR.
func (s *internalLog) Settle(p int32, lost <-chan struct{}) error {
	committed := make(chan error, 1)
	s.partitions.AwaitCommitted(s.at(p), s.timeout, func(err error) { committed <- err })
	select {
	case err := <-committed:
		return err
	case <-lost:
		return nil
	}
}

func (s *internalLog) Partitions() int32 {
	t := s.metadata.Image().Topic(s.topic)
	if t == nil {
		return 0
	}
	return int32(t.Len())
}
