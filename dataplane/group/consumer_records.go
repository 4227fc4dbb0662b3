package group

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/group/assignor"
	"penstock/dataplane/protocol"
)

// The records of consumer groups (KIP-848), as Kafka 4.4 writes them. Keys are as in
// records.go; values begin with the int16 version 0 and are in the flexible encoding.
//
//	kind                 key                    value
//	group epoch          3, group               epoch; tag 0: hash of the subscribed topics
//	partition metadata   4, group               before Kafka 4.1 in place of the hash; we only remove it
//	member               5, group, member       instance, rack, client id and host, names, regex, rebalance timeout,
//	                                            assignor; tag 0: session timeout and protocols of the classic protocol
//	target epoch         6, group               epoch; tag 0: time of the assignment, in ms since 1970
//	target assignment    7, group, member       partitions by topic id
//	current assignment   8, group, member       epoch, previous epoch, state, partitions, partitions to be revoked;
//	                                            tag 0 beside each list: the epochs in which they were got
//	regular expression   16, group, expression  topics, version 0, time in ms since 1970
const (
	kindEpoch      = 3
	kindPartitions = 4
	kindMember     = 5
	kindAssigned   = 6
	kindTarget     = 7
	kindCurrent    = 8
	kindRegex      = 16
)

// consumerKey is a record's key: name is the member or the expression, "" where the kind
// has none.
type consumerKey struct {
	kind        uint16
	group, name string
}

func (k consumerKey) named() bool {
	return k.kind == kindMember || k.kind == kindTarget || k.kind == kindCurrent || k.kind == kindRegex
}

func (k consumerKey) bytes() []byte {
	b := binary.BigEndian.AppendUint16(nil, k.kind)
	b = appendShortString(b, k.group)
	if k.named() {
		b = appendShortString(b, k.name)
	}
	return b
}

func appendShortString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func readConsumerKey(b []byte) (consumerKey, error) {
	r := &wireReader{b: b}
	k := consumerKey{kind: uint16(r.int16())}
	switch k.kind {
	case kindEpoch, kindPartitions, kindMember, kindAssigned, kindTarget, kindCurrent, kindRegex:
	default:
		return k, errForeign
	}
	k.group = string(r.take(int(r.int16())))
	if k.named() {
		k.name = string(r.take(int(r.int16())))
	}
	if r.err != nil {
		return k, fmt.Errorf("read key of kind %d: %w", k.kind, r.err)
	}
	return k, nil
}

// tooLong says whether a string does not fit into a record's key.
func tooLong(s string) bool { return len(s) > math.MaxInt16 }

// Values, one type a kind. A tombstone has none.
type (
	epochValue struct {
		epoch int32
		hash  int64
	}
	partitionsValue struct{} // it is there: more is not read
	assignedValue   struct {
		epoch int32
		at    int64 // ms since 1970; 0 unknown
	}
	currentValue struct {
		epoch, previous int32
		state           memberState
		has, revoking   holding
	}
	regexValue struct {
		topics []string
		at     int64 // ms since 1970
	}
)

func value(body []byte) []byte { return append(make([]byte, 2, 2+len(body)), body...) }

func (v epochValue) encode() []byte {
	b := putInt32(nil, v.epoch)
	if v.hash == 0 {
		return value(putTags(b, nil))
	}
	return value(putTags(b, map[uint32][]byte{0: putInt64(nil, v.hash)}))
}

func (v assignedValue) encode() []byte {
	b := putInt32(nil, v.epoch)
	if v.at == 0 {
		return value(putTags(b, nil))
	}
	return value(putTags(b, map[uint32][]byte{0: putInt64(nil, v.at)}))
}

func encodeTarget(a assignor.Assignment) []byte {
	b := putCount(nil, len(a))
	for _, t := range sortedIDs(a) {
		b = append(b, t[:]...)
		b = putCount(b, len(a[t]))
		for _, p := range a[t] {
			b = putInt32(b, p)
		}
		b = putTags(b, nil)
	}
	return value(putTags(b, nil))
}

func putHolding(b []byte, h holding) []byte {
	b = putCount(b, len(h))
	for _, t := range sortedIDs(h) {
		b = append(b, t[:]...)
		ps := slices.Sorted(maps.Keys(h[t]))
		b = putCount(b, len(ps))
		epochs := putCount(nil, len(ps))
		for _, p := range ps {
			b = putInt32(b, p)
			epochs = putInt32(epochs, h[t][p])
		}
		b = putTags(b, map[uint32][]byte{0: epochs})
	}
	return b
}

func (v currentValue) encode() []byte {
	b := putInt32(nil, v.epoch)
	b = putInt32(b, v.previous)
	b = append(b, byte(v.state))
	b = putHolding(b, v.has)
	b = putHolding(b, v.revoking)
	return value(putTags(b, nil))
}

func (v regexValue) encode() []byte {
	b := putCount(nil, len(v.topics))
	for _, t := range v.topics {
		b = putString(b, t)
	}
	b = putInt64(b, 0) // of the metadata: ours has no version
	b = putInt64(b, v.at)
	return value(putTags(b, nil))
}

func (m *consumerMember) encode() []byte {
	b := putNullable(nil, m.instance)
	b = putNullable(b, m.rack)
	b = putString(b, m.clientID)
	b = putString(b, m.host)
	b = putCount(b, len(m.names))
	for _, n := range m.names {
		b = putString(b, n)
	}
	b = putNullable(b, &m.regex)
	b = putInt32(b, int32(m.rebalanceTimeout.Milliseconds()))
	if m.assignor == "" {
		b = putNullable(b, nil)
	} else {
		b = putString(b, m.assignor)
	}
	if m.classic == nil {
		return value(putTags(b, nil))
	}
	c := putInt32(nil, int32(m.classic.session.Milliseconds()))
	c = putCount(c, len(m.classic.protocols))
	for _, p := range m.classic.protocols {
		c = putString(c, p.name)
		c = putCount(c, len(p.metadata))
		c = append(c, p.metadata...)
		c = putTags(c, nil)
	}
	return value(putTags(b, map[uint32][]byte{0: putTags(c, nil)}))
}

func sortedIDs[V any](m map[protocol.UUID]V) []protocol.UUID {
	return slices.SortedFunc(maps.Keys(m), func(a, b protocol.UUID) int { return slices.Compare(a[:], b[:]) })
}

// readConsumerValue reads a value that is not nil. Its type is one of those above,
// assignor.Assignment or *consumerMember without the parts of its current assignment.
func readConsumerValue(kind uint16, b []byte) (any, error) {
	r := &wireReader{b: b}
	if v := r.int16(); v != 0 {
		return nil, fmt.Errorf("version %d of a value of kind %d", v, kind)
	}
	var out any
	switch kind {
	case kindEpoch:
		v := epochValue{epoch: r.int32()}
		r.tags(func(tag uint32, f *wireReader) {
			if tag == 0 {
				v.hash = f.int64()
			}
		})
		out = v
	case kindPartitions:
		return partitionsValue{}, nil
	case kindMember:
		out = readMember(r)
	case kindAssigned:
		v := assignedValue{epoch: r.int32()}
		r.tags(func(tag uint32, f *wireReader) {
			if tag == 0 {
				v.at = f.int64()
			}
		})
		out = v
	case kindTarget:
		a := make(assignor.Assignment)
		for range r.count(18) {
			t := r.uuid()
			ps := r.int32s()
			r.tags(nil)
			if slices.Sort(ps); len(ps) > 0 {
				a[t] = slices.Compact(ps)
			}
		}
		r.tags(nil)
		out = a
	case kindCurrent:
		v := currentValue{epoch: r.int32(), previous: r.int32(), state: memberState(r.int8())}
		v.has = readHolding(r, v.epoch)
		v.revoking = readHolding(r, v.epoch)
		r.tags(nil)
		out = v
	case kindRegex:
		var v regexValue
		for range r.count(1) {
			v.topics = append(v.topics, r.string())
		}
		r.int64()
		v.at = r.int64()
		r.tags(nil)
		out = v
	}
	if r.err != nil {
		return nil, fmt.Errorf("read value of kind %d: %w", kind, r.err)
	}
	return out, nil
}

// readHolding reads a list of partitions; those without an epoch (before Kafka 4.3) get
// the member's.
func readHolding(r *wireReader, epoch int32) holding {
	var h holding
	for range r.count(18) {
		t := r.uuid()
		ps := r.int32s()
		var epochs []int32
		r.tags(func(tag uint32, f *wireReader) {
			if tag == 0 {
				epochs = f.int32s()
			}
		})
		for i, p := range ps {
			e := epoch
			if i < len(epochs) {
				e = epochs[i]
			}
			h.add(t, p, e)
		}
	}
	return h
}

func readMember(r *wireReader) *consumerMember {
	m := &consumerMember{instance: r.nullable(), rack: r.nullable(), clientID: r.string(), host: r.string()}
	for range r.count(1) {
		m.names = append(m.names, r.string())
	}
	slices.Sort(m.names)
	m.names = slices.Compact(m.names)
	m.regex = str(r.nullable())
	m.rebalanceTimeout = time.Duration(r.int32()) * time.Millisecond
	m.assignor = str(r.nullable())
	r.tags(func(tag uint32, f *wireReader) {
		if tag != 0 {
			return
		}
		c := &classicSide{session: time.Duration(f.int32()) * time.Millisecond}
		for range f.count(3) {
			c.protocols = append(c.protocols, groupProtocol{f.string(), f.bytes()})
			f.tags(nil)
		}
		f.tags(nil)
		m.classic = c
	})
	return m
}

// record is a record of the group, a tombstone if v is nil.
func (k consumerKey) record(v []byte) coordinator.Record {
	return coordinator.Record{Timestamp: time.Now().UnixMilli(), Key: k.bytes(), Value: v}
}
