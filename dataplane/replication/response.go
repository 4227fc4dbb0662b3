package replication

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/peer"
	"penstock/dataplane/protocol"
)

// readResponse takes in a Fetch response of version 12 to 15 a partition at a time, so that
// no more than one has to be in memory; the library's decoder wants all of it. It calls head
// with the error and the session of the whole, then each with every partition, whose records
// are good during that call. The topic has an id, before version 13 a name.
func readResponse(b *peer.Body, version int16, head func(code int16, session int32), each func(id protocol.UUID, name string, p *kmsg.FetchResponseTopicPartition)) error {
	b.Int32() // throttle time
	code, session := b.Int16(), b.Int32()
	if b.Err() != nil {
		return b.Err()
	}
	head(code, session)
	var p kmsg.FetchResponseTopicPartition
	for topics := b.Len(); topics > 0 && b.Err() == nil; topics-- {
		var id protocol.UUID
		name := ""
		if version >= fetchByID {
			copy(id[:], b.Take(len(id)))
		} else {
			name = string(b.Take(b.Len()))
		}
		for parts := b.Len(); parts > 0 && b.Err() == nil; parts-- {
			b.Drop()
			if readPartition(b, &p); b.Err() == nil {
				each(id, name, &p)
			}
		}
		b.Tags(nil)
	}
	b.Tags(nil)
	return b.Err()
}

func readPartition(b *peer.Body, p *kmsg.FetchResponseTopicPartition) {
	p.Default()
	p.Partition, p.ErrorCode = b.Int32(), b.Int16()
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = b.Int64(), b.Int64(), b.Int64()
	for n := b.Len(); n > 0 && b.Err() == nil; n-- { // aborted transactions, which consumers are told
		b.Take(16)
		b.Tags(nil)
	}
	p.PreferredReadReplica = b.Int32()
	size := max(b.Len(), 0)
	from := b.Taken()
	b.Take(size)
	b.Tags(func(key uint32) {
		if key == 0 {
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = b.Int32(), b.Int64()
		}
	})
	p.RecordBatches = nil
	if b.Err() == nil {
		p.RecordBatches = b.Since(from)[:size]
	}
}

// receive takes the answer in while it comes: the next partition arrives in the socket's
// buffer while one is checked and written. What was taken in before an error stays.
func (t *thread) receive(b *peer.Body, version int16) error {
	return readResponse(b, version, func(code int16, session int32) {
		if t.refusal = kerr.ErrorForCode(code); t.refusal == nil {
			t.session.answered(session)
		}
	}, func(id protocol.UUID, name string, p *kmsg.FetchResponseTopicPartition) {
		c := t.session.find(id, name, p.Partition)
		switch {
		case c == nil || t.refusal != nil:
		case p.ErrorCode == kerr.OffsetOutOfRange.Code: // has to ask the leader, over this connection
			t.lost = append(t.lost, c)
		default:
			t.take(c, p)
		}
	})
}

// outOfRange is the answer for a partition whose offset the leader does not have.
var outOfRange = func() *kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode = kerr.OffsetOutOfRange.Code
	return &p
}()
