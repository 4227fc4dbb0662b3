package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// The records of __consumer_offsets, as Kafka 3.9 writes them. A key begins
// with its int16 version, which is also its kind; all integers are big-endian,
// a string is an int16 length and its bytes.
//
//	kind            key                                  value (nil: tombstone)
//	offset commit   1, group, topic, int32 partition     version 3: offset, leader epoch, metadata, commit time
//	                                                     version 1: offset, metadata, commit time, expiry time
//	                                                       (a commit with a retention time of its own, OffsetCommit 2 to 4)
//	group           2, group                             version 3: protocol type, generation, protocol, leader, time
//	                                                       of the state, members
//
// Kind 0 is an offset commit of old. Kinds 3 to 8 and 16 are of consumer groups, see
// consumer_records.go; others are left alone.
const (
	offsetKeyV0, offsetKeyV1 = 0, 1
	groupKey                 = 2

	offsetValueExpiring = 1
	offsetValue         = 3
	groupValue          = 3
)

// consumerProtocolType is the protocol type whose member metadata is known to
// be a consumer's subscription.
const consumerProtocolType = "consumer"

func groupRecordKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: groupKey, Group: group}
	return k.AppendTo(nil)
}

// groupRecord is the group's record as it stands.
func (g *group) groupRecord() coordinator.Record {
	v := kmsg.GroupMetadataValue{
		Version:               groupValue,
		ProtocolType:          g.protocolType,
		Generation:            g.generation,
		Protocol:              g.protocol,
		CurrentStateTimestamp: g.stateAtMillis(),
	}
	if g.leader != "" {
		v.Leader = &g.leader
	}
	for _, m := range g.order {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID:               m.id,
			InstanceID:             m.instanceID,
			ClientID:               m.clientID,
			ClientHost:             m.host,
			RebalanceTimeoutMillis: int32(m.rebalanceTimeout.Milliseconds()),
			SessionTimeoutMillis:   int32(m.sessionTimeout.Milliseconds()),
			Subscription:           m.metadata(str(g.protocol)),
			Assignment:             m.assignment,
		})
	}
	return coordinator.Record{Timestamp: time.Now().UnixMilli(), Key: groupRecordKey(g.id), Value: v.AppendTo(nil)}
}

// entry is a decoded record of a group; a nil value is a tombstone.
type entry struct {
	group string
	value *kmsg.GroupMetadataValue
}

// errForeign marks a record of a kind that is not ours.
var errForeign = errors.New("record of an unknown kind")

// decode reads a record that is no offset; nothing of the result aliases it.
func decode(rec coordinator.Record) (entry, error) {
	if len(rec.Key) < 2 {
		return entry{}, errors.New("record key without a version")
	}
	switch binary.BigEndian.Uint16(rec.Key) {
	case groupKey:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(rec.Key); err != nil {
			return entry{}, fmt.Errorf("read group key: %w", err)
		}
		e := entry{group: k.Group}
		if rec.Value == nil {
			return e, nil
		}
		e.value = new(kmsg.GroupMetadataValue)
		// kmsg keeps byte slices of its source.
		if err := e.value.ReadFrom(bytes.Clone(rec.Value)); err != nil {
			return entry{}, fmt.Errorf("read group value of group %q: %w", k.Group, err)
		}
		return e, nil
	}
	return entry{}, errForeign
}

// subscription is the topics of a consumer's member metadata.
func subscription(metadata []byte) ([]string, error) {
	var m kmsg.ConsumerMemberMetadata
	if err := m.ReadFrom(metadata); err != nil {
		return nil, err
	}
	return m.Topics, nil
}
