package txn

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// The records of __transaction_state, as Kafka writes them. All integers are big-endian.
//
//	key    version 0: int16 version, transactional id
//	value  version 0, and 1 from transaction.version 1 on (compact lengths, tagged fields):
//	       int16 version, producer id, producer epoch, timeout in ms, state, partitions by
//	       topic (null in state Empty), time of the update, start of the transaction;
//	       tags: 0 previous producer id, 1 next producer id, 2 the client's
//	       transaction.version, 3 next producer epoch
//
// A null value is a tombstone: the id has expired.
const (
	keyVersion   = 0
	valueVersion = 1 // the newest
)

func recordKey(id string) []byte {
	k := kmsg.TxnMetadataKey{Version: keyVersion, TransactionalID: id}
	return k.AppendTo(nil)
}

// record is the id's record at a transaction.version of the cluster.
func record(id string, m *meta, version int16) coordinator.Record {
	v := kmsg.NewTxnMetadataValue()
	if version >= 1 {
		v.Version = valueVersion
	}
	v.ProducerID, v.ProducerEpoch, v.TimeoutMillis, v.State = m.producerID, m.epoch, m.timeout, kmsg.TransactionState(m.state)
	v.LastUpdateTimestamp, v.StartTimestamp = m.updated, m.start
	v.PreviousProducerID, v.NextProducerID, v.NextProducerEpoch, v.ClientTransactionVersion = m.previousID, m.nextID, m.nextEpoch, m.client
	if m.state != stateEmpty {
		v.Topics = []kmsg.TxnMetadataValueTopic{}
		for _, t := range byTopic(m.parts) {
			vt := kmsg.NewTxnMetadataValueTopic()
			vt.Topic, vt.Partitions = t.topic, t.partitions
			v.Topics = append(v.Topics, vt)
		}
	}
	return coordinator.Record{Timestamp: m.updated, Key: recordKey(id), Value: v.AppendTo(nil)}
}

// topicPartitions are partitions of one topic.
type topicPartitions struct {
	topic      string
	partitions []int32
}

// byTopic lists a set in order.
func byTopic(s partitions) []topicPartitions {
	tps := make([]protocol.TopicPartition, 0, len(s))
	for tp := range s {
		tps = append(tps, tp)
	}
	return groupByTopic(tps)
}

// groupByTopic orders tps, which it may change.
func groupByTopic(tps []protocol.TopicPartition) []topicPartitions {
	slices.SortFunc(tps, func(a, b protocol.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	var out []topicPartitions
	for _, tp := range tps {
		if n := len(out); n == 0 || out[n-1].topic != tp.Topic {
			out = append(out, topicPartitions{topic: tp.Topic})
		}
		last := &out[len(out)-1]
		last.partitions = append(last.partitions, tp.Partition)
	}
	return out
}

// errForeign marks a record of a kind that is not ours.
var errForeign = errors.New("record of an unknown kind")

// decode reads a record; m is nil for a tombstone. Nothing of the result aliases it.
func decode(rec coordinator.Record) (id string, m *meta, err error) {
	if len(rec.Key) < 2 {
		return "", nil, errors.New("record key without a version")
	}
	if binary.BigEndian.Uint16(rec.Key) != keyVersion {
		return "", nil, errForeign
	}
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(rec.Key); err != nil {
		return "", nil, fmt.Errorf("read transaction key: %w", err)
	}
	id = k.TransactionalID
	if rec.Value == nil {
		return id, nil, nil
	}
	if len(rec.Value) < 2 {
		return id, nil, fmt.Errorf("transaction value of %q without a version", id)
	}
	if v := binary.BigEndian.Uint16(rec.Value); v > valueVersion {
		return id, nil, fmt.Errorf("transaction value of %q of version %d", id, v)
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(rec.Value); err != nil {
		return id, nil, fmt.Errorf("read transaction value of %q: %w", id, err)
	}
	if v.State < 0 || state(v.State) >= stateDead {
		return id, nil, fmt.Errorf("transaction value of %q in state %d", id, v.State)
	}
	m = &meta{
		producerID: v.ProducerID, previousID: v.PreviousProducerID, nextID: v.NextProducerID,
		start: v.StartTimestamp, updated: v.LastUpdateTimestamp, timeout: v.TimeoutMillis,
		epoch: v.ProducerEpoch, lastEpoch: noEpoch, nextEpoch: v.NextProducerEpoch,
		client: v.ClientTransactionVersion, state: state(v.State),
	}
	if m.state != stateEmpty && len(v.Topics) > 0 {
		m.parts = make(partitions)
		for _, t := range v.Topics {
			for _, p := range t.Partitions {
				m.parts[protocol.TopicPartition{Topic: t.Topic, Partition: p}] = struct{}{}
			}
		}
	}
	return id, m, nil
}
